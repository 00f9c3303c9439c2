"""The recipe for training on a corpus: an experiment chosen by its number of characters, for a number of minutes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from omegaconf import DictConfig

from nmt.errors import command
from nmt.preparation.counts import Counts


class SizedRecipe(NamedTuple):
    """The experiment own_text_NAME for up to `most` characters of both sides (None: any number), and its reasons."""

    name: str
    most: int | None
    reasons: tuple[str, ...]


_MAX_LENGTH, _MAX_RATIO, _MAX_TOKENS = 128, 4, 1024  # of data, in the recipes
_USUAL_SHARE, _MOST = 0.95, 0.99  # of the pairs that the limits should keep, and do if they are raised
_SMALL = (
    "batches of 1,024 tokens: more steps in the same time",
    "dropout 0.3: each pair is read many times",
    "little text: 1,500 pairs of captions gave 20 BLEU, 1,500 of news 3; more text helps more than any setting",
)
# Up to some 1,800 and 6,000 pairs of captions, and above
RECIPES = (
    SizedRecipe("tiny", 250_000, (*_SMALL, "R-Drop: two dropout passes must agree, against overfitting")),
    SizedRecipe("small", 800_000, _SMALL),
    SizedRecipe("medium", None, ("batches of 2,048 tokens", "dropout 0.1: much text for the time")),
)


def recipe_for(characters: int) -> SizedRecipe:
    return next(each for each in RECIPES if each.most is None or characters <= each.most)


def write_recipe(counts: Counts, minutes: int, data: DictConfig, path: str) -> dict[str, Any]:
    """The command that trains on the folder `path` for some minutes, and a reason for each choice.

    counts: of the training text.
    """
    characters = int(counts.characters.sum())
    chosen = recipe_for(characters)
    hours, rest = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    settings = [f"experiment=own_text_{chosen.name}", f"data.path={path}"]
    settings += [f"data.src_lang={data.src_lang}", f"data.tgt_lang={data.tgt_lang}"]
    settings += [f"data.columns=[{','.join(data.columns)}]"] if data.columns is not None else []
    settings += ["data.bad_rows=skip"] if data.bad_rows == "skip" else []
    limits = _limits(counts)
    settings += limits
    settings += [f"trainer.max_time={days:02}:{hours:02}:{rest:02}:00"]
    return {
        "command": command("train", settings),
        "characters": characters,
        "minutes": minutes,
        "reasons": [
            "8,000 pieces, or as many as the text gives: on texts of every size, more were better than fewer",
            *chosen.reasons,
            *(
                [f"{' '.join(limits)}: by default, a good part of these lines is too long or too uneven"]
                if limits
                else []
            ),
            "model=gru_256: attended source pieces vote for target pieces, which brought BLEU on texts of every size",
            "guided_alignment=0.5: attention is drawn to words that occur together, and need not find them by itself",
            "Muon: more learned in the same time than by Adam",
            "trainer.precision=auto: bfloat16 if a short measurement finds it faster, so more steps in the same time",
            "decoding=tuned: a length penalty chosen on the validation set",
            "trainer.max_time: the learning rate falls to nothing when the time ends",
        ],
    }


def _limits(counts: Counts) -> list[str]:
    """Settings that keep pairs which the default limits leave out, if these are more than a few."""
    limits = []
    if counts.num_pieces(_USUAL_SHARE) > _MAX_LENGTH:
        most = 1 << (counts.num_pieces(_MOST) - 1).bit_length()
        limits += [f"data.max_length={most}"] + [f"data.max_tokens={most}"] * (most > _MAX_TOKENS)
    if counts.ratio_of_pieces(_USUAL_SHARE) > _MAX_RATIO:
        # Pieces are but estimated
        limits += [f"data.max_ratio={math.ceil(1.5 * counts.ratio_of_pieces(_MOST))}"]
    return limits


def say_recipe(recipe: dict[str, Any]) -> str:
    reasons: Sequence[str] = recipe["reasons"]
    head = f"train on these {recipe['characters']:,} characters for {recipe['minutes']} minutes:\n  {recipe['command']}"
    return "\n".join((head, *(f"    {each}" for each in reasons)))
