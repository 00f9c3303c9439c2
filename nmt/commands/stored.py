"""The stored settings of runs for the commands that read them, before torch is imported."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import islice
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from nmt.config.types import as_list, key_of
from nmt.errors import UserError
from nmt.run.paths import TUNED, load_config, refuse_stored_dictionary, stored_settings


def take_stored(
    cfg: DictConfig,
    group: str,
    overrides: Sequence[str],
    runs: Mapping[str | Path, DictConfig] | None = None,
) -> None:
    """Set a command's settings of a group to the stored settings of its runs, except those given in `overrides`.

    runs: configurations by directory, by default those of `cfg.run`. Raises UserError if a given setting is unknown to
    the stored choice.
    """
    if runs is None:
        runs = {run: load_config(Path(run)) for run in as_list(cfg.run)}
    given = {key_of(each): each for each in overrides if key_of(each).split(".")[0] == group}
    # The first member of an ensemble gives the decoding; for the metrics all members must agree
    if group != "metrics" or group in given:
        runs = dict(islice(runs.items(), 1))
    stored = stored_settings(runs, group)
    if stored is None:
        return
    if group not in given:
        taken = deepcopy(stored)
        for key, override in given.items():
            name = key.split(".")[1]
            if name not in stored and override[0] != "+":
                raise UserError(f"{key}: the run stores no {group}.{name}: choose {group}= too")
            value = None if override[0] == "~" else OmegaConf.select(cfg, key)
            OmegaConf.update(taken, key.partition(".")[2], value, force_add=True)
        if group == "decoding" and "decoding.dictionary" not in given:
            refuse_stored_dictionary(taken.get("dictionary"))
        cfg[group] = taken
    if group == "decoding":
        if {"decoding", "decoding.length_alpha"} & given.keys() and cfg.decoding.length_alpha is None:
            (first, config), *_ = runs.items()
            if (config.get("choices") or {}).get("decoding") != TUNED:
                raise UserError(
                    f"only train.py chooses decoding.length_alpha=null, and {first} has chosen none: give a number"
                )
        for key in ("max_length_ratio", "length_alpha"):  # training sets them if they are null
            if cfg.decoding[key] is None:
                cfg.decoding[key] = stored.get(key)
        check_coverage(cfg.decoding)


def check_coverage(decoding: DictConfig) -> None:
    """Raise UserError for a penalty that ranks the hypotheses of a beam, without a beam."""
    if decoding.get("beam_size") == 1 and not decoding.get("sample") and decoding.get("coverage_beta"):
        raise UserError(
            f"decoding.coverage_beta={decoding.coverage_beta} has no effect with beam_size=1: give 0"
        )
