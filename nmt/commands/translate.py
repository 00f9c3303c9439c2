"""Translate the lines of a file or of standard input."""

import logging
import os
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, islice
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from nmt import alignment, plotting
from nmt.analysis.explanation import check_explainers, explain
from nmt.commands.entry import outlive_reader
from nmt.config.build import build
from nmt.config.types import as_list
from nmt.data.unknown_characters import UnknownCharacters
from nmt.decoding import DecodingSettings
from nmt.errors import UserError
from nmt.lines import LONGEST_LINE, decode_lines, read_lines
from nmt.run.limits import check_decoding
from nmt.run.paths import grow_file
from nmt.run.run import Run, open_run
from nmt.run.translation import Translation

log = logging.getLogger(__name__)

OF_ATTENTION = ("alignments", "weights", "heatmaps", "page")  # outputs that need a model with attention
LONGEST = 2**15  # bytes of a line that is no document; a longer one takes minutes
PATIENCE = 0.02  # seconds to wait for more lines before those that came are translated


def translate(cfg: DictConfig) -> None:
    """Write one line for each input line, in order; with `num_best` > 1, that many lines `LINE ||| TEXT ||| SCORE`.

    A line that is empty, or too long and was cut, always gives one line. Files grow as lines come, and take their names
    at the end; a page shows the first lines. With `prefixes`, all lines are read before the first is translated.
    """
    how = {key: cfg[key] for key in ("checkpoint", "average", "device", "int8", "trusted")}
    run = open_run(cfg.run, **how)
    decoding = build(cfg.decoding, "decoding")
    check_decoding(decoding, run.translator, num_best=cfg.num_best)
    check_explainers(run, cfg.explain)
    if wanted := {key for key in OF_ATTENTION if cfg[key] is not None}:
        if not run.translator.has_attention and (wanted & {"alignments", "weights"} or not cfg.explain):
            raise UserError(
                f"{cfg.run} has no attention: leave out alignments and weights; for heatmaps and page give explain=[…]"
            )
        if cfg.output is None:
            outlive_reader()
    page, shown = None if cfg.page is None else plotting.Page(), {}  # matplotlib takes a while to load
    others = as_list(cfg.beside)
    if cfg.beside is None and OmegaConf.is_list(cfg.run):
        others = list(cfg.run)
    with ExitStack() as stack:
        translated = tqdm(
            _translate_all(cfg, run, decoding),
            desc="translate",
            unit="lines",
            disable=cfg.output is None or None,
        )
        add = _writers(cfg, stack)
        for number, each in enumerate(translated, 1):
            add(number, each)
            has_words = bool(each.source_words and each.target_words)
            group = None
            if cfg.explain and has_words and (page is None or cfg.heatmaps is not None or not page.left_out):
                group = _explain(cfg, run, number, each)
            if page is None or not (others or each.is_drawable or (cfg.explain and has_words)):
                continue
            if page.add(group or each.sentence(f"line {number}")) and others:
                shown[number] = each
    if page is not None:
        if others:
            left_out, page = page.left_out, plotting.Page()
            for group in _side_by_side(cfg, run, others, shown, decoding, how):
                page.add(group)
            page.left_out += left_out
        page.write(cfg.page, title=f"Translations by {run.title}", languages=run.languages)


def _writers(cfg: DictConfig, stack: ExitStack) -> Callable[[int, Translation], None]:
    """A function that writes a line's translation to standard output or the files, which `stack` closes."""
    write = {
        key: stack.enter_context(grow_file(Path(cfg[key])))
        for key in ("output", "alignments")
        if cfg[key] is not None
    }
    save = None if cfg.weights is None else stack.enter_context(alignment.saving_weights(Path(cfg.weights)))
    wants_weights = any(cfg[key] is not None for key in OF_ATTENTION if key != "alignments")

    def add(number: int, each: Translation) -> None:
        lines = "\n".join(output_lines(number, each, cfg.num_best))
        if "output" in write:
            write["output"](f"{lines}\n")
        else:
            print(lines, flush=True)
        if "alignments" in write:
            write["alignments"](f"{alignment.format_pharaoh(each.links)}\n")
        if each.weights is None and each.part_links and wants_weights:
            log.warning("line %d is too long: it has links, but no weights", number)
        if save is not None:
            save(*(() if each.weights is None else (each.weights, each.source_words, each.target_words)))
        if cfg.heatmaps is not None and each.is_drawable:
            plotting.write_heatmap(number, each.sentence(f"line {number}"), cfg.heatmaps)

    return add


def _side_by_side(
    cfg: DictConfig,
    run: Run,
    others: Sequence[str],
    shown: dict[int, Translation],
    decoding: DecodingSettings,
    how: dict[str, Any],
) -> Iterator[plotting.SentenceGroup]:
    """The translations of the shown lines by `run` and by the other runs, which use the same prefixes."""
    lines = [each.source for each in shown.values()]
    prefixes = None if cfg.prefixes is None else list(islice(read_lines(Path(cfg.prefixes)), len(lines)))
    found = [("ensemble" if OmegaConf.is_list(cfg.run) else run.name, list(shown.values()))]
    for path in others:
        other = Run.load(path, **how)
        check_decoding(decoding, other.translator, num_best=1)
        found.append((other.name, other.translate(lines, decoding, prefixes=prefixes, units=cfg.units)))
    for row, number in enumerate(shown):
        own = [(name, translations[row]) for name, translations in found]
        members = [each.sentence(f"{name}, log p {each.log_prob:.2f}", each.text) for name, each in own]
        yield plotting.SentenceGroup(f"line {number}", members, is_series=False)


def _explain(cfg: DictConfig, run: Run, number: int, each: Translation) -> plotting.SentenceGroup | None:
    """A line's attention, if there is one, and its explanations, which are also drawn as heatmaps.

    None for a line that is longer than the model reads at once.
    """
    pieces = [*run.tokenizer.encode_source([each.source]), *run.tokenizer.encode_target([each.text])]
    if max(map(len, pieces)) > run.most_pieces:
        log.warning("line %d is too long to explain: it has more than %d pieces", number, run.most_pieces)
        return None
    members = [each.sentence("attention")] if each.is_drawable else []
    for method in cfg.explain:
        if method == "attention":  # drawn already
            continue
        name, weights = method.replace("_", " "), explain(run, each.source, each.text, method).weights
        aligned = run.between_units(weights, each.source, each.text, units=cfg.units)
        members.append(aligned.sentence(name, None))
        if cfg.heatmaps is not None:
            drawn = aligned.sentence(f"line {number}, {name}", None)
            plotting.write_heatmap(number, drawn, cfg.heatmaps, f"_{method}")
    return plotting.SentenceGroup(f"line {number}", members, is_series=False)


def output_lines(number: int, translation: Translation, num_best: int) -> list[str]:
    """The output lines of one input line."""
    if num_best == 1:
        return [translation.text]
    return [f"{number} ||| {each.text} ||| {each.score:.4f}" for each in (translation, *translation.others)]


def _translate_all(cfg: DictConfig, run: Run, decoding: DecodingSettings) -> Iterator[Translation]:
    """Translate in blocks, so that output starts before all input is read."""
    longest = LONGEST_LINE if run.translator.reads_documents else LONGEST
    blocks, prefixes = _blocks(cfg, longest), None
    if cfg.prefixes is not None:
        lines, prefixes = list(chain.from_iterable(blocks)), list(read_lines(Path(cfg.prefixes)))
        if len(prefixes) != len(lines):
            name = "standard input" if cfg.input is None else cfg.input
            raise UserError(f"{name} has {len(lines)} lines but {cfg.prefixes} has {len(prefixes)}")
        blocks = batched(iter(lines), cfg.block_size)
    done = 0
    with UnknownCharacters(run.tokenizer) as unknown:
        for block in blocks:
            yield from run.translate(
                block,
                decoding,
                num_best=cfg.num_best,
                prefixes=None if prefixes is None else prefixes[done : done + len(block)],
                first_line=done + 1,
                need_weights=any(cfg[key] is not None for key in OF_ATTENTION),
                units=cfg.units,
                unknown=unknown,
            )
            done += len(block)


def _blocks(cfg: DictConfig, longest: int) -> Iterator[list[str]]:
    """The input in blocks of `block_size` lines, or, of a pipe or a terminal, of those that have come.

    Raises UserError, before the first line of a file is translated, for a line that is too long or no text.
    """
    if cfg.input is not None:
        path = Path(cfg.input)
        if path.is_file():
            deque(read_lines(path, longest=longest), maxlen=0)
        return batched(read_lines(path, longest=longest), cfg.block_size)
    stdin = sys.stdin.buffer
    with suppress(OSError):  # one without a descriptor is not a real one, as in a test
        if not stat.S_ISREG(os.fstat(stdin.fileno()).st_mode):
            return arriving(_own_input(stdin.fileno(), longest), cfg.block_size)
    return batched(decode_lines(stdin, "standard input", longest=longest), cfg.block_size)


def _own_input(descriptor: int, longest: int) -> Iterator[str]:
    """The lines of standard input for a thread: Python forbids one to wait for sys.stdin while the program ends."""
    with os.fdopen(os.dup(descriptor), "rb") as handle:
        yield from decode_lines(handle, "standard input", longest=longest)


def batched(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """The lines in blocks of `size`."""
    while block := list(islice(lines, size)):
        yield block


def arriving(lines: Iterator[str], most: int) -> Iterator[list[str]]:
    """The lines in blocks of those that have come, at most `most`: whoever writes one and waits gets its answer."""
    queue: Queue[Any] = Queue(maxsize=most)

    def read() -> None:
        try:
            for line in lines:
                queue.put(line)
            queue.put(None)
        except Exception as error:
            queue.put(error)

    Thread(target=read, daemon=True).start()
    last: Any = ""
    while isinstance(last, str):
        block = [last := queue.get()]
        until = time.monotonic() + PATIENCE
        with suppress(Empty):
            while isinstance(last, str) and len(block) < most:
                block.append(last := queue.get(timeout=max(0, until - time.monotonic())))
        if whole := [line for line in block if isinstance(line, str)]:
            yield whole
    if last is not None:
        raise last


main = translate
