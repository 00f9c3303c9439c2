"""The recipe for training on a corpus: an experiment chosen by its number of characters, for a number of minutes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from omegaconf import DictConfig

from nmt.errors import command


class SizedRecipe(NamedTuple):
    """The experiment own_text_NAME for up to `most` characters of both sides (None: any number), and its pieces."""

    name: str
    most: int | None
    pieces: int


# For some 3,000, 10,000 and 100,000 pairs of captions
RECIPES = (
    SizedRecipe("tiny", 400_000, 1_000),
    SizedRecipe("small", 1_300_000, 2_000),
    SizedRecipe("medium", 13_000_000, 4_000),
    SizedRecipe("large", None, 8_000),
)
# Dropout by characters for each minute: the fewer they are, the more often each pair is read
DROPOUT = ((40_000, 0.4), (130_000, 0.3), (200_000, 0.2), (None, 0.1))


def recipe_for(characters: int) -> SizedRecipe:
    return next(each for each in RECIPES if each.most is None or characters <= each.most)


def dropout_for(characters: int, minutes: int) -> float:
    return next(dropout for most, dropout in DROPOUT if most is None or characters <= most * minutes)


def write_recipe(characters: int, minutes: int, data: DictConfig, path: str) -> dict[str, Any]:
    """The command that trains on the folder `path` for some minutes, and a reason for each choice.

    characters: of both sides of the training text.
    """
    chosen, dropout = recipe_for(characters), dropout_for(characters, minutes)
    hours, rest = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    settings = [f"experiment=own_text_{chosen.name}", f"data.path={path}"]
    settings += [f"data.src_lang={data.src_lang}", f"data.tgt_lang={data.tgt_lang}"]
    settings += [f"data.columns=[{','.join(data.columns)}]"] if data.columns is not None else []
    settings += ["data.bad_rows=skip"] if data.bad_rows == "skip" else []
    settings += [f"trainer.max_time={days:02}:{hours:02}:{rest:02}:00", f"model.dropout={dropout}"]
    return {
        "command": command("train", settings),
        "characters": characters,
        "minutes": minutes,
        "reasons": [
            f"{chosen.pieces:,} pieces: of more, most would be seen too rarely in {characters:,} characters",
            f"dropout {dropout}: {characters / minutes:,.0f} characters for each minute; the fewer, the more often "
            "each is read",
            "Muon: more learned in the same time than by Adam",
            "trainer.max_time: the learning rate falls to nothing when the time ends",
        ],
    }


def say_recipe(recipe: dict[str, Any]) -> str:
    reasons: Sequence[str] = recipe["reasons"]
    head = f"train on these {recipe['characters']:,} characters for {recipe['minutes']} minutes:\n  {recipe['command']}"
    return "\n".join((head, *(f"    {each}" for each in reasons)))
