"""A configuration as a flat mapping, and the keys of what overrides it."""

from typing import Any


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
