"""Names and shapes of settings: a configuration as a flat mapping, the keys of overrides, the splits of a corpus."""

from typing import Any

SPLITS = ("train", "val", "test")


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """`{"model": {"size": 4, "tied": []}}` as `{"model.size": 4, "model.tied": []}`: lists stay whole."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {
        name: leaf
        for key, branch in tree.items()
        for name, leaf in flat(branch, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def key_of(override: str) -> str:
    """The key that an override of the command line sets, adds or removes: `++a.b=c` is of `a.b`."""
    return override.partition("=")[0].lstrip("+~")
