"""The recipe for training on a corpus: an experiment chosen by its number of pairs, for a number of minutes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from omegaconf import DictConfig

from nmt.errors import command


class SizedRecipe(NamedTuple):
    """The experiment own_text_NAME for up to `most` pairs (None: any number), and why its settings are so."""

    name: str
    most: int | None
    reasons: tuple[str, ...]


_SHARED = (
    "Muon: more learned in the same time than by Adam",
    "trainer.max_time: the learning rate falls to nothing when the time ends",
)
RECIPES = (
    SizedRecipe(
        "tiny",
        3_000,
        (
            "1,000 pieces: of more, most would be seen too rarely",
            "dropout 0.4 and batches of 1,024 tokens: each pair is read dozens of times",
        ),
    ),
    SizedRecipe("small", 10_000, ("2,000 pieces", "dropout 0.3: each pair is read many times")),
    SizedRecipe("medium", 100_000, ("4,000 pieces, batches of 2,048 tokens", "dropout 0.2")),
    SizedRecipe("large", None, ("8,000 pieces", "dropout 0.1: each pair is read a few times at most")),
)


def recipe_for(pairs: int) -> SizedRecipe:
    return next(each for each in RECIPES if each.most is None or pairs <= each.most)


def write_recipe(pairs: int, minutes: int, data: DictConfig, path: str) -> dict[str, Any]:
    """The command that trains on `pairs` pairs of the folder `path` for some minutes, and a reason for each choice."""
    chosen = recipe_for(pairs)
    hours, rest = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    given = [f"data.path={path}", f"data.src_lang={data.src_lang}", f"data.tgt_lang={data.tgt_lang}"]
    given += [f"data.columns=[{','.join(data.columns)}]"] if data.columns is not None else []
    given += ["data.bad_rows=skip"] if data.bad_rows == "skip" else []
    time = f"trainer.max_time={days:02}:{hours:02}:{rest:02}:00"
    return {
        "command": command("train", [f"experiment=own_text_{chosen.name}", *given, time]),
        "pairs": pairs,
        "minutes": minutes,
        "reasons": [*chosen.reasons, *_SHARED],
    }


def say_recipe(recipe: dict[str, Any]) -> str:
    reasons: Sequence[str] = recipe["reasons"]
    head = f"train on these {recipe['pairs']:,} pairs for {recipe['minutes']} minutes:\n  {recipe['command']}"
    return "\n".join((head, *(f"    {each}" for each in reasons)))
