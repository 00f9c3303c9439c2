"""Translate lines: files, or standard input to standard output."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from omegaconf import DictConfig

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
    """Write one line for each line read, in order; with `num_best` > 1, that many `LINE ||| TEXT ||| SCORE`.

    Of a line that is empty, or so long that it was cut, there is one of them all the same. Where there are `prefixes`,
    all lines are read before the first is translated.
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
    translated = _translate_all(cfg, run, decoding, lines)
    if cfg.output is None and not wants_weights:
        for number, each in enumerate(translated, 1):  # as they come
            print("\n".join(output_lines(number, each, cfg.num_best)), flush=True)
        return
    results = list(translated)
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
        number: plotting.Sentence(each.weights, each.source_words, each.target_words, title=f"line {number}")
        for number, each in enumerate(results, 1)
        if each.weights is not None and each.weights.size
    }
    if cfg.heatmaps is not None:
        plotting.write_heatmaps(pictures, cfg.heatmaps)
    if cfg.page is not None:
        title = f"Translations by {run.directory.name}"
        plotting.write_page(pictures, cfg.page, title=title, languages=run.languages)


def output_lines(number: int, translation: Translation, num_best: int) -> list[str]:
    """The lines that stand for one input line."""
    if num_best == 1:
        return [translation.text]
    return [f"{number} ||| {each.text} ||| {each.score:.4f}" for each in (translation, *translation.others)]


def _translate_all(
    cfg: DictConfig, run: Run, decoding: DecodingSettings, lines: Iterator[str]
) -> Iterator[Translation]:
    """Blocks of lines, so that the first are out before the last are in; a person at a terminal gets each."""
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
        yield from run.translate(chunk, decoding, num_best=cfg.num_best, prefixes=begun, first_line=done + 1)
        done += len(chunk)


def _write(path: str, lines: list[str]) -> None:
    write_atomically(Path(path), "".join(f"{line}\n" for line in lines))


main = translate
