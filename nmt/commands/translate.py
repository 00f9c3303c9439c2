"""Translate the lines of a file or of standard input."""

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from nmt import alignment, plotting
from nmt.commands.entry import outlive_reader
from nmt.data.lines import decoded, read_lines
from nmt.decoding import DecodingSettings
from nmt.errors import UserError
from nmt.run.building import build
from nmt.run.checks import check_decoding
from nmt.run.directory import Run, open_run
from nmt.run.files import write_atomically
from nmt.run.translation import Translation


def translate(cfg: DictConfig) -> None:
    """Write one line for each input line, in order; with `num_best` > 1, that many lines `LINE ||| TEXT ||| SCORE`.

    A line that is empty, or too long and was cut, always gives one line. With `prefixes`, all lines are read before the
    first is translated.
    """
    how = {key: cfg[key] for key in ("checkpoint", "average", "device", "int8", "trusted")}
    run = open_run(cfg.run, **how)
    decoding = build(cfg.decoding)
    check_decoding(decoding, run.translator, num_best=cfg.num_best)
    wants_weights = not (cfg.alignments is cfg.heatmaps is cfg.page is None)
    if wants_weights and not run.translator.has_attention:
        raise UserError(f"{cfg.run} has no attention: it gives no alignments and no heatmaps")
    if cfg.input is None:
        lines = decoded(sys.stdin.buffer, "standard input")
    else:
        lines = read_lines(Path(cfg.input))
    translated = _translate_all(cfg, run, decoding, lines, need_weights=wants_weights)
    if cfg.output is None and not wants_weights:
        for number, each in enumerate(translated, 1):  # each as soon as it is ready
            print("\n".join(output_lines(number, each, cfg.num_best)), flush=True)
        return
    results = list(tqdm(translated, desc="translate", unit="lines", disable=None))
    written = [
        line for number, each in enumerate(results, 1) for line in output_lines(number, each, cfg.num_best)
    ]
    if cfg.output is None:
        if written:
            outlive_reader()
            print("\n".join(written))
    else:
        _write(cfg.output, written)
    if cfg.alignments is not None:
        _write(cfg.alignments, [alignment.format_pharaoh(each.links) for each in results])
    pictures = {
        number: _picture(each, f"line {number}")
        for number, each in enumerate(results, 1)
        if each.weights is not None and each.weights.size
    }
    if cfg.heatmaps is not None:
        plotting.write_heatmaps(pictures, cfg.heatmaps)
    if cfg.page is not None:
        title = f"Translations by {run.directory.name}"
        beside = cfg.run if cfg.beside is None and OmegaConf.is_list(cfg.run) else cfg.beside
        others = [beside] if isinstance(beside, str) else list(beside or ())
        shown = _side_by_side(cfg, run, others, results, decoding, how) if others else pictures
        plotting.write_page(shown, cfg.page, title=title, languages=run.languages)


def _picture(translation: Translation, title: str, note: str | None = None) -> plotting.Sentence:
    source, target = translation.source_words, translation.target_words
    weights = np.zeros((len(target), len(source))) if translation.weights is None else translation.weights
    return plotting.Sentence(weights, source, target, title=title, note=note)


def _side_by_side(
    cfg: DictConfig,
    run: Run,
    others: Sequence[str],
    results: list[Translation],
    decoding: DecodingSettings,
    how: dict[str, Any],
) -> dict[int, plotting.Group]:
    """The translations of each line by `run` and by the other runs, which use the same prefixes."""
    lines = [each.source for each in results]
    prefixes = None if cfg.prefixes is None else list(read_lines(Path(cfg.prefixes)))
    found = [("ensemble" if OmegaConf.is_list(cfg.run) else run.name, results)]
    for path in others:
        other = Run.load(path, **how)
        check_decoding(decoding, other.translator, num_best=1)
        found.append((other.name, other.translate(lines, decoding, prefixes=prefixes, units=cfg.units)))
    groups = {}
    for number, each in enumerate(zip(*(translations for _, translations in found), strict=True), 1):
        members = [
            _picture(own, f"{name}, log p {own.log_prob:.2f}", own.text)
            for (name, _), own in zip(found, each, strict=True)
        ]
        groups[number] = plotting.Group(f"line {number}", members, is_series=False)
    return groups


def output_lines(number: int, translation: Translation, num_best: int) -> list[str]:
    """The output lines of one input line."""
    if num_best == 1:
        return [translation.text]
    return [f"{number} ||| {each.text} ||| {each.score:.4f}" for each in (translation, *translation.others)]


def _translate_all(
    cfg: DictConfig, run: Run, decoding: DecodingSettings, lines: Iterator[str], *, need_weights: bool
) -> Iterator[Translation]:
    """Translate in blocks, so that output starts before all input is read; line by line at a terminal."""
    block = 1 if cfg.input is None and sys.stdin.isatty() else cfg.block_size
    prefixes = None
    if cfg.prefixes is not None:
        whole, prefixes = list(lines), list(read_lines(Path(cfg.prefixes)))
        if len(prefixes) != len(whole):
            name = "standard input" if cfg.input is None else cfg.input
            raise UserError(f"{name} has {len(whole)} lines but {cfg.prefixes} has {len(prefixes)}")
        lines = iter(whole)
    done = 0
    while chunk := list(islice(lines, min(block, sys.maxsize))):
        begun = None if prefixes is None else prefixes[done : done + len(chunk)]
        yield from run.translate(
            chunk,
            decoding,
            num_best=cfg.num_best,
            prefixes=begun,
            first_line=done + 1,
            need_weights=need_weights,
            units=cfg.units,
        )
        done += len(chunk)


def _write(path: str, lines: list[str]) -> None:
    write_atomically(Path(path), "".join(f"{line}\n" for line in lines))


main = translate
