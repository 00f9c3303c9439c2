"""Examine parallel text: report its faults, and write a clean copy."""

from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from nmt.atomic import json_text, write_together
from nmt.data.find import Languages, find, missing_split_error, more_test_sets
from nmt.languages import wanted_tokenization
from nmt.preparation import overview
from nmt.preparation.clean_copy import DROPPED, NEW_SPLITS, write_copy
from nmt.preparation.counts import Counts
from nmt.preparation.examination import Knowledge, Sample, Split, Usual, compare_sides, look
from nmt.preparation.held_out import all_keys
from nmt.preparation.problems import BOUNDS, has
from nmt.preparation.recipe import say_recipe, write_recipe
from nmt.preparation.shifts import Stretch, shift_of_all


def prepare(cfg: DictConfig) -> dict[str, Any]:
    """Print and return the report; with `output`, `report` and `page`, write them."""
    splits = find_splits(cfg.data)
    *held_out, train = splits
    bounds = {name: float(value) for name, value in cfg.rules.items() if not isinstance(value, bool)}
    examine(splits, BOUNDS | bounds, cfg.seed)
    rules = [name for name, value in cfg.rules.items() if value is not False]
    found = {each.name: overview.describe(each, rules if each is train else (), cfg.seed) for each in splits}
    print("\n\n".join(overview.say_report(name, each) for name, each in found.items()))
    result: dict[str, Any] = {"splits": found}
    counts = train.counts
    if cfg.output is not None:
        result["copy"], counts = write_copy(Path(cfg.output).resolve(), train, held_out, rules, cfg.seed)
        print(f"\n{cfg.output}: {say_copy(result['copy'])}")
    path = cfg.data.path if cfg.output is None else cfg.output
    if cfg.output is None and has(train.bits, *rules).all():
        print("\nevery training pair has one of these problems: repair the text before training")
    elif cfg.output is not None or any(each.name == "val" for each in held_out):
        result["recipe"] = write_recipe(counts, cfg.minutes, cfg.data, path)
        print(f"\n{say_recipe(result['recipe'])}")
    else:
        print("\nval is missing: training needs it, and output=DIR takes one from the training text")
    files = {} if cfg.report is None else {Path(cfg.report): json_text(result)}
    if cfg.page is not None:
        files[Path(cfg.page)] = overview.report_page(
            found, train, f"{cfg.data.src_lang}–{cfg.data.tgt_lang}: {cfg.data.path}"
        )
    if files:
        write_together(files)
    return result


def find_splits(data: DictConfig) -> list[Split]:
    """The splits of the folder, the training text last. Raises UserError if it is missing."""
    directory = Path(data.path).expanduser()
    languages = Languages(data.src_lang, data.tgt_lang, None if data.columns is None else tuple(data.columns))
    train = find(directory, "train", languages)
    if train is None:
        raise missing_split_error(directory, "train", languages)
    held_out = {name: find(directory, name, languages) for name in ("val", "test")}
    found = held_out | more_test_sets(directory, languages) | {"train": train}
    units = _unit_of(languages.src), _unit_of(languages.tgt)
    is_lenient = data.bad_rows == "skip"
    return [
        Split(name, files, languages, Counts(units), is_lenient) for name, files in found.items() if files
    ]


def _unit_of(lang: str) -> str:
    return "characters" if wanted_tokenization(lang) in ("zh", "ja-mecab", "char") else "words"


def examine(splits: list[Split], bounds: dict[str, float], seed: int) -> None:
    """Find the problems of all splits. All is learned from the training text, the last."""
    *held_out, train = splits
    sample = Sample(seed)
    keys = [np.zeros(0, np.uint64)]
    for split in held_out:
        look(split, Sample(seed), keys[0], bounds)
        keys += [all_keys(block.src) for block in split.read("sources")]
    look(train, sample, np.unique(np.concatenate(keys)), bounds)
    train.mark(
        "held_out",
        np.isin(train.pairs, np.concatenate([train.pairs[:0], *(each.pairs for each in held_out)])),
    )
    if pairs := [*sample.halves[0], *sample.halves[1]]:
        usual = Usual.of(train.counts, pairs)
        if shift := shift_of_all(sample.blocks):  # what seems in place would teach wrong words
            train.stretches = [Stretch(0, len(train.bits) - 1, shift)]
            train.mark("shifted", np.ones(len(train.bits), bool))
        known = Knowledge.learn(sample, usual, seed) if shift == 0 else None
        for split in splits:
            compare_sides(split, usual, known, bounds)


def say_copy(counts: dict[str, int]) -> str:
    """The numbers of kept and dropped pairs."""
    kept = [f"{name} {counts[name]:,}" for name in NEW_SPLITS if name in counts]
    dropped = [f"{name} {number:,}" for name, number in counts.items() if name not in NEW_SPLITS]
    lines = f"{', '.join(dropped)} ({DROPPED} has their lines)" if dropped else "none"
    return f"{', '.join(kept)}; dropped: {lines}"


main = prepare
