"""Align the words of given pairs by a run's attention, an explanation or by counting, or score an alignment."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from tqdm import tqdm

from nmt import alignment, plotting
from nmt.alignment import AlignmentScore, Links
from nmt.analysis.explanation import check_explainers, explain
from nmt.errors import UserError
from nmt.lines import read_lines
from nmt.run.aligning import Aligned, Reading
from nmt.run.paths import write_atomically
from nmt.run.run import Run

READINGS: tuple[Reading, ...] = ("emitted", "fed")

log = logging.getLogger(__name__)

FEWEST_PAIRS = 1000  # without a warning, to count words in
BLOCK = 4096  # pairs whose weights are in memory together

Gold = list[tuple[Links, Links]]  # sure and possible links of each pair
Pairs = list[Aligned | None]  # None for a pair that the model cannot read


def align(cfg: DictConfig) -> AlignmentScore | None:
    """Write the alignment, or, with gold links, print its error and return it."""
    if cfg.alignment is not None:
        given = [sure for sure, _ in alignment.read_alignments(cfg.alignment, possible=False)]
        return score_links(cfg, given, read_gold(cfg, len(given), cfg.alignment))
    sources, targets = list(read_lines(Path(cfg.src))), list(read_lines(Path(cfg.tgt)))
    if len(sources) != len(targets):
        raise UserError(f"{cfg.src} has {len(sources)} lines but {cfg.tgt} has {len(targets)}")
    units = "words" if cfg.units == "auto" and cfg.gold is not None else cfg.units
    if cfg.run is None:
        if len(sources) < FEWEST_PAIRS:
            log.warning(
                "%s has %d lines: without run=, words are counted, and need thousands", cfg.src, len(sources)
            )
        sides = [[alignment.split_units(line, units) for line in lines] for lines in (sources, targets)]
        gold = None if cfg.gold is None else gold_links(cfg, zip(*sides, strict=True), len(sources), units)
        return report(cfg, [*alignment.align_words(*sides)], gold)
    run, reverse = load_runs(cfg)
    labels = (
        (run.tokenizer.source_side(source, units).labels, run.tokenizer.target_side(target, units).labels)
        for source, target in zip(sources, targets, strict=True)
    )
    gold = None if cfg.gold is None else gold_links(cfg, labels, len(sources), units)
    if cfg.search:
        assert gold is not None
        return score_every_head(cfg, run, sources, targets, gold, units)
    links: list[Links] = []
    page = None if cfg.page is None else plotting.Page()  # matplotlib takes a while to load
    save_all = nullcontext() if cfg.weights is None else alignment.saving_weights(Path(cfg.weights))
    with save_all as save:
        for first in range(0, len(sources), BLOCK):
            pairs = align_block(cfg, run, sources, targets, units, first)
            found = links_of(cfg, pairs)
            if reverse is not None:
                backward = links_of(cfg, align_block(cfg, reverse, targets, sources, units, first))
                found = [
                    alignment.symmetrize(one, {(i, j) for j, i in other}, cfg.symmetrization)
                    for one, other in zip(found, backward, strict=True)
                ]
            links += found
            show(cfg, pairs, first, gold, page, save)
    if page is not None:
        title = f"{Path(cfg.src).name}, aligned by {run.title}"
        page.write(cfg.page, title=title, languages=run.languages)
    return report(cfg, links, gold)


def report(cfg: DictConfig, links: list[Links], gold: Gold | None) -> AlignmentScore | None:
    """Write the links, or print them, or their error; return that error if gold links are given."""
    lines = [alignment.format_pharaoh(each) for each in links]
    if cfg.output is not None:
        write_atomically(Path(cfg.output), "".join(f"{line}\n" for line in lines))
    elif gold is None and not (cfg.page or cfg.heatmaps or cfg.weights):
        print(*(f"{line}\n" for line in lines), sep="", end="")
    return None if gold is None else score_links(cfg, links, gold)


def load_runs(cfg: DictConfig) -> tuple[Run, Run | None]:
    """The run, and that of the opposite direction.

    Raises UserError if one has another direction, or no attention if that is asked for, or does not fit `explain`.
    """
    which = {key: cfg[key] for key in ("checkpoint", "average", "device", "trusted")}
    run = Run.load(cfg.run, **which)
    reverse = None if cfg.reverse_run is None else Run.load(cfg.reverse_run, **which)
    if reverse is not None and run.languages is not None and reverse.languages is not None:
        there, back = " to ".join(run.languages), " to ".join(reverse.languages)
        if reverse.languages != run.languages[::-1]:
            raise UserError(
                f"reverse_run={cfg.reverse_run} translates {back}, which is not {there} in reverse"
            )
    for directory, each in ((cfg.run, run), (cfg.reverse_run, reverse)):
        if each is not None and cfg.explain is not None:
            check_explainers(each, [cfg.explain])
        elif each is not None and not each.translator.has_attention:
            raise UserError(f"{directory} has no attention: give explain=occlusion, which needs none")
    return run, reverse


def align_block(
    cfg: DictConfig, run: Run, sources: list[str], targets: list[str], units: str, first: int
) -> Pairs:
    """The weights between the units of each pair, from the row `first` on."""
    block, chosen = slice(first, first + BLOCK), {key: cfg[key] for key in ("layer", "head", "reading")}
    if cfg.explain is not None:
        chosen["weigh"] = lambda source, target: explain(run, source, target, cfg.explain).weights
    found = run.align_pairs(sources[block], targets[block], units=units, first_line=first + 1, **chosen)
    bar = tqdm(found, desc="align", unit="pairs", initial=first, total=len(sources), disable=None)
    pairs = dict(bar)
    return [pairs.get(row) for row in range(len(sources[block]))]


def links_of(cfg: DictConfig, pairs: Pairs) -> list[Links]:
    """The links (source, target) of each pair."""
    return [set() if each is None else each.links(cfg.method, cfg.threshold) for each in pairs]


def show(
    cfg: DictConfig, pairs: Pairs, first: int, gold: Gold | None, page: plotting.Page | None, save: Any
) -> None:
    """Save and draw the weights of each pair, gold links outlined, and add it to the page."""
    for row, each in enumerate(pairs, first):
        if save is not None:
            save(*(() if each is None else (each.weights, each.source.labels, each.target.labels)))
        if each is not None and each.weights.size:
            sure = None if gold is None else gold[row][0]
            picture = each.sentence(f"line {row + 1}", sure)
            if cfg.heatmaps is not None:
                plotting.write_heatmap(row + 1, picture, cfg.heatmaps)
            if page is not None:
                page.add(picture)


def score_every_head(
    cfg: DictConfig, run: Run, sources: list[str], targets: list[str], gold: Gold, units: str
) -> AlignmentScore:
    """Print the error of every layer and head, and of their means, in both readings, best first."""
    if not sources:
        raise UserError(f"{cfg.src} has no lines: there is nothing to search")
    found: dict[tuple[int | None, int | None, str], list[Links]] = {}
    every = run.attentions(sources, targets)
    for row, weights in tqdm(every, total=len(sources), desc="align", unit="pairs", disable=None):
        num_layers, num_heads = weights.shape[:2]
        layers = [*range(num_layers), *([None] if num_layers > 1 else [])]
        heads = [*range(num_heads), *([None] if num_heads > 1 else [])]
        for layer in layers:
            for head in heads:
                of_layers = weights.mean(axis=0, keepdims=True) if layer is None else weights
                chosen = run.choose_head(of_layers, layer or 0, head)
                for reading in READINGS:
                    links = found.setdefault((layer, head, reading), [set() for _ in sources])
                    pair = run.between_units(chosen, sources[row], targets[row], reading, units)
                    links[row] = pair.links(cfg.method, cfg.threshold)
    if not found:
        raise UserError(f"{cfg.src}: the model can read none of the pairs: there is nothing to search")
    sures, possibles = [sure for sure, _ in gold], [possible for _, possible in gold]
    scores = {key: alignment.score_alignments(links, sures, possibles) for key, links in found.items()}
    print(f"{'layer':>5}  {'head':>5}  {'reading':8}  AER    precision  recall")
    for (layer, head, read_as), result in sorted(scores.items(), key=lambda pair: pair[1].aer):
        names = ("mean" if each is None else each for each in (layer, head))
        print("{:>5}  {:>5}".format(*names), f" {read_as:8}  {result.aer:.3f}  ", end="")
        print(f"{result.precision:.3f}      {result.recall:.3f}")
    return min(scores.values())


def score_links(cfg: DictConfig, links: list[Links], gold: Gold) -> AlignmentScore:
    """Print and return the error of links against gold ones; warn if only one of the two seems to count from 1."""
    firsts = lowest_word(links), lowest_word(possible for _, possible in gold)
    if None not in firsts and 0 in firsts and firsts != (0, 0):
        file = cfg.gold if firsts[0] == 0 else cfg.alignment or "the alignment"
        log.warning("%s has no link of a word 0: does it count from 1? Links count words from 0", file)
    result = alignment.score_alignments(links, [sure for sure, _ in gold], [possible for _, possible in gold])
    print(f"AER {result.aer:.3f}  precision {result.precision:.3f}  recall {result.recall:.3f}")
    return result


def gold_links(
    cfg: DictConfig, sides: Iterable[tuple[Sequence[str], Sequence[str]]], number_of_pairs: int, units: str
) -> Gold:
    """The gold links of each pair of `sides`, in units. Raises UserError, naming file and line, for one outside."""
    gold = read_gold(cfg, number_of_pairs, cfg.src)
    for number, ((sure, possible), pair) in enumerate(zip(gold, sides, strict=True), start=1):
        num_src, num_tgt = map(len, pair)
        for i, j in sorted(possible):
            if i >= num_src or j >= num_tgt:
                kind = "-" if (i, j) in sure else "p"
                link = f"{j}{kind}{i}" if cfg.flip_gold else f"{i}{kind}{j}"
                advice = "see flip_gold for the order"
                if lowest_word(possible for _, possible in gold):
                    advice = "no link has a word 0: does the file count from 1? Links count words from 0"
                raise UserError(
                    f"{cfg.gold}:{number}: link {link} is out of range: the line has {num_src} {units} in {cfg.src} "
                    f"and {num_tgt} in {cfg.tgt}; {advice}"
                )
    return gold


def lowest_word(links: Iterable[Links]) -> int | None:
    """The lowest word of all links, on either side; None without links. A file that counts from 1 has no 0."""
    return min((place for each in links for link in each for place in link), default=None)


def read_gold(cfg: DictConfig, number: int, name: str) -> Gold:
    """The links of the gold file, which must have as many lines as `name`: `number`."""
    gold = alignment.read_alignments(cfg.gold)
    if len(gold) != number:
        raise UserError(f"{name} has {number} lines but {cfg.gold} has {len(gold)}")
    if cfg.flip_gold:
        gold = [({(i, j) for j, i in sure}, {(i, j) for j, i in possible}) for sure, possible in gold]
    return gold


main = align
