"""Types of settings and their check, the groups of choices, and the splits of a corpus."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from nmt.errors import UserError


def _in_64_bits(value: int) -> int:
    if value >= 2**63:
        raise ValueError("give less than 2^63")
    return value


Whole = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1), AfterValidator(_in_64_bits)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
ZeroToOne = Annotated[float, Field(ge=0, le=1)]
Portion = Annotated[float, Field(gt=0, le=1)]
Bound = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # NumPy's range

Explainer = Literal["attention", "value_norm", "rollout", "gradient", "integrated_gradients", "occlusion"]
Units = Literal["auto", "words", "pieces", "characters"]  # to show and link attention in

SPLITS = ("train", "val", "test")


class ConfigGroup(NamedTuple):
    """A group of choices, `configs/NAME/*.yaml`.

    recorded: the choice is stored with a run. in_name: it is part of a run's name. changeable: a resumed run may change
    its settings, except `changes.FIXED`.
    """

    name: str
    what: str
    recorded: bool = False
    in_name: bool = False
    changeable: bool = False


GROUPS = (
    ConfigGroup("data", "the text; grammar is built in, files is your own", recorded=True, in_name=True),
    ConfigGroup(
        "model", "a published pair of encoder and decoder, with their sizes", recorded=True, in_name=True
    ),
    ConfigGroup("encoder", "what reads the source", recorded=True),
    ConfigGroup("decoder", "what writes the translation", recorded=True),
    ConfigGroup("cell", "what recurrent layers repeat", recorded=True),
    ConfigGroup("attention", "the published score with its published wiring", recorded=True, in_name=True),
    ConfigGroup("wiring", "how the decoder uses the attention; attention= also sets it", recorded=True),
    ConfigGroup("normalizer", "from scores to weights", recorded=True),
    ConfigGroup(
        "content", "the score inside local_m, local_p, multi_head, sentences and hierarchical", recorded=True
    ),
    ConfigGroup(
        "positions", "how Transformer and convolutional layers know the order of words", recorded=True
    ),
    ConfigGroup("optimizer", "the update rule", recorded=True),
    ConfigGroup("scheduler", "the learning rate over time", recorded=True),
    ConfigGroup("averaging", "whether averaged weights are validated, kept and scored", recorded=True),
    ConfigGroup("decoding", "how text is translated", changeable=True),
    ConfigGroup("metrics", "the scores of translations", changeable=True),
    ConfigGroup("trainer", "where training runs"),
    ConfigGroup("callbacks", "what happens during training", changeable=True),
    ConfigGroup("logger", "where training is logged", changeable=True),
    ConfigGroup("tuning", "the settings that a search (-m) tries, guided by their scores"),
    ConfigGroup("experiment", "all settings of a run in one file"),
)
INTERNAL = ("base", "stored")  # files of a group that are no choices


def pattern(regex: str, advice: str) -> AfterValidator:
    """A check that text has a match of `regex`; the message is `advice`."""

    def check(text: str) -> str:
        if re.search(regex, text) is None:
            raise ValueError(advice)
        return text

    return AfterValidator(check)


def check_value(kind: Any, value: Any, key: str) -> None:
    """Raise UserError, naming the dotted key, if a plain value is not of the declared type.

    Values are read strictly, as JSON: a list may stand for a tuple; true is no number, "3" no integer.
    """
    # A TypedDict takes no other configuration.
    config = None if is_typeddict(kind) else ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
    try:
        TypeAdapter(kind, config=config).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        # A union with a class has this fault too; if there is no other, the value needs a _target_
        faults = error.errors()
        errors = [each for each in faults if each["type"] != "needs_python_object"]
        errors = errors or [{**faults[0], "msg": "Input should be built, with a _target_"}]
        located = [
            (*_locate(value, key, each["loc"]), each["msg"].removeprefix("Value error, ")) for each in errors
        ]
        name, found, first = located[0]
        others = dict.fromkeys(message for other, _, message in located if other == name and message != first)
        more = "".join(f", or {each.removeprefix('Input should be ')}" for each in others)
        raise UserError(f"{name}={say(found)}: {first}{more}") from error


def _locate(value: Any, key: str, place: tuple[int | str, ...]) -> tuple[str, Any]:
    """The dotted key of an error's place, and the value there. A list counts as a whole."""
    for part in place:
        if not isinstance(value, dict) or part not in value:
            break
        value, key = value[part], f"{key}.{part}" if key else str(part)
    return key, value


def say(value: Any) -> str:
    """A value as typed on the command line."""
    if isinstance(value, str):
        return value
    # Parts of a configuration are mappings and sequences, unknown to JSON
    plain: Any = lambda part: dict(part) if isinstance(part, Mapping) else list(part)  # noqa: E731
    return json.dumps(value, ensure_ascii=False, default=plain)


def as_list(value: str | Sequence[str] | None) -> list[str]:
    """The values of a setting that takes one text or a list of them; none if it is null."""
    return [value] if isinstance(value, str) else list(value or ())


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
    """The key that an override of the command line sets, adds or removes: `a.b` for `++a.b=c`."""
    return override.partition("=")[0].lstrip("+~")
