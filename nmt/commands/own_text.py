"""The recipe for one's own text, if the command line of a training chooses none."""

import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from nmt.commands.arguments import parse_setting
from nmt.data.find import Languages, find, missing_split_error
from nmt.environment import launch_rank
from nmt.errors import UserError
from nmt.preparation.recipe import RECIPES, recipe_for

_WHERE = {"data.path", "data.src_lang", "data.tgt_lang"}
_MOST = max(each.most or 0 for each in RECIPES)


def with_recipe(arguments: Sequence[str]) -> list[str]:
    """Add the recipe for the amount of training text to the arguments of a training with data=files, and say so.

    Attention is not guided if there is none, or if the text is a stream, which is not aligned. Nothing is added to
    arguments that choose an experiment, or a run to resume or to start from, whose model must stay. Hydra cannot
    choose nothing: experiment=null becomes ~experiment.
    """
    arguments = ["~experiment" if each == "experiment=null" else each for each in arguments]
    parsed = [each for argument in arguments if (each := parse_setting(argument))]
    named = {each.key_or_group for each in parsed}
    given = {each.key_or_group: each.value() for each in parsed if not each.is_sweep_override()}
    if (
        given.get("data") != "files"
        or named & {"experiment", "resume", "start_from"}
        or not given.keys() >= _WHERE
    ):
        return arguments
    try:
        characters = _count_characters(given)
    except (UserError, OSError):  # training finds the same fault, and says it
        return arguments
    chosen = [f"experiment=own_text_{recipe_for(characters).name}"]
    no_attention = given.get("attention") == "none"
    if "guided_alignment" not in named and (no_attention or given.get("data.streaming")):
        chosen.append("guided_alignment=0")
    if "model.lexical" not in named and no_attention:
        chosen.append("model.lexical=false")
    if launch_rank() == 0:
        number = f"{characters:,}" if characters <= _MOST else f"over {_MOST:,}"
        said = f"{' '.join(chosen)}, for {number} characters of training text; experiment=null leaves it out"
        if "trainer.max_time" not in named:
            said += ". It takes 10 minutes; trainer.max_time=00:01:00:00 gives it an hour"
        print(said, file=sys.stderr)
    return [*arguments, *chosen]


def _count_characters(given: Mapping[str, Any]) -> int:
    """The characters of both sides of the training text, counted until the recipes no longer tell numbers apart."""
    if given.get("data.streaming"):
        return _MOST + 1
    path, src, tgt = (str(given[f"data.{key}"]) for key in ("path", "src_lang", "tgt_lang"))
    columns = given.get("data.columns")
    languages = Languages(src, tgt, None if columns is None else tuple(map(str, columns)))
    files = find(Path(path).expanduser(), "train", languages)
    if files is None:
        raise missing_split_error(Path(path), "train", languages)
    from nmt.data.formats import located_rows  # late: it needs pyarrow

    total = 0
    for _, _, row in chain.from_iterable(located_rows(shard, languages) for shard in files.shards):
        if not isinstance(row, UserError):
            total += len(row[0]) + len(row[1])
        if total > _MOST:
            break
    return total
