"""Settings: the ranges that constructors declare, the splits of a corpus, a configuration as a flat mapping."""

from typing import Annotated, Any

from pydantic import Field

Whole = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]

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
