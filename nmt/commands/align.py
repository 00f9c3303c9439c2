"""Align the words of given pairs by a run's attention, or score an alignment against gold links."""

from pathlib import Path

from omegaconf import DictConfig
from tqdm import tqdm

from nmt import alignment, plotting
from nmt.alignment import AlignmentScore, Links
from nmt.data.lines import read_lines
from nmt.errors import UserError
from nmt.run.aligning import Aligned, Reading
from nmt.run.directory import Run
from nmt.run.files import write_atomically

READINGS: tuple[Reading, ...] = ("emitted", "fed")

Gold = list[tuple[Links, Links]]  # sure and possible links of each pair
Pairs = list[Aligned | None]  # None for a pair that the model cannot read


def align(cfg: DictConfig) -> AlignmentScore | None:
    """Write the alignment, or print its error where gold links are given; return that error."""
    if cfg.alignment is not None:
        links = [sure for sure, _ in alignment.read_alignments(cfg.alignment, possible=False)]
        return score(links, read_gold(cfg, len(links), cfg.alignment))
    which = {"checkpoint": cfg.checkpoint, "average": cfg.average, "trusted": cfg.trusted}
    run = Run.load(cfg.run, **which, device=cfg.device)
    sources, targets = list(read_lines(Path(cfg.src))), list(read_lines(Path(cfg.tgt)))
    if len(sources) != len(targets):
        raise UserError(f"{cfg.src} has {len(sources)} lines but {cfg.tgt} has {len(targets)}")
    reverse = None if cfg.reverse_run is None else Run.load(cfg.reverse_run, **which, device=cfg.device)
    if reverse is not None and run.languages is not None and reverse.languages is not None:
        there, back = " to ".join(run.languages), " to ".join(reverse.languages)
        if reverse.languages != run.languages[::-1]:
            raise UserError(
                f"reverse_run={cfg.reverse_run} translates {back}, which is not {there} in reverse"
            )
    for directory, each in ((cfg.run, run), (cfg.reverse_run, reverse)):
        if each is not None and not each.translator.has_attention:
            raise UserError(f"{directory} has no attention: it aligns nothing")
    units = "words" if cfg.units == "auto" and cfg.gold is not None else cfg.units
    gold = None if cfg.gold is None else gold_links(cfg, run, sources, targets, units)
    if cfg.search:
        assert gold is not None
        return search(cfg, run, sources, targets, gold, units)
    pairs = align_all(cfg, run, sources, targets, units)
    links = links_of(cfg, pairs)
    if reverse is not None:
        backward = links_of(cfg, align_all(cfg, reverse, targets, sources, units))
        links = [
            alignment.symmetrize(one, {(i, j) for j, i in other}, cfg.symmetrization)
            for one, other in zip(links, backward, strict=True)
        ]
    if cfg.page is not None or cfg.heatmaps is not None:
        draw(cfg, run, pairs, gold)
    lines = [alignment.format_pharaoh(each) for each in links]
    if cfg.output is not None:
        write_atomically(Path(cfg.output), "".join(f"{line}\n" for line in lines))
    elif gold is None and not (cfg.page or cfg.heatmaps):
        print(*(f"{line}\n" for line in lines), sep="", end="")
    return None if gold is None else score(links, gold)


def align_all(cfg: DictConfig, run: Run, sources: list[str], targets: list[str], units: str) -> Pairs:
    """The weights between the units of each pair."""
    chosen = {"layer": cfg.layer, "head": cfg.head, "reading": cfg.reading, "units": units}
    found = run.align_pairs(sources, targets, **chosen)
    pairs = dict(tqdm(found, total=len(sources), desc="align", unit="pairs", disable=None))
    return [pairs.get(row) for row in range(len(sources))]


def links_of(cfg: DictConfig, pairs: Pairs) -> list[Links]:
    """The links (source, target) of each pair."""
    return [set() if each is None else each.links(cfg.method, cfg.threshold) for each in pairs]


def draw(cfg: DictConfig, run: Run, pairs: Pairs, gold: Gold | None) -> None:
    """Draw the weights of each pair, gold links outlined."""
    sures = [None] * len(pairs) if gold is None else [sure for sure, _ in gold]
    pictures = {
        number: plotting.Sentence(
            each.weights, each.source.labels, each.target.labels, title=f"line {number}", gold=sure
        )
        for number, (each, sure) in enumerate(zip(pairs, sures, strict=True), start=1)
        if each is not None and each.weights.size
    }
    if cfg.heatmaps is not None:
        plotting.write_heatmaps(pictures, cfg.heatmaps)
    if cfg.page is not None:
        title = f"{Path(cfg.src).name}, aligned by {Path(cfg.run).name}"
        plotting.write_page(pictures, cfg.page, title=title, languages=run.languages)


def search(
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
                    pair = run.between(chosen, sources[row], targets[row], reading, units)
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


def score(links: list[Links], gold: Gold) -> AlignmentScore:
    """Print and return the error of links against gold ones."""
    result = alignment.score_alignments(links, [sure for sure, _ in gold], [possible for _, possible in gold])
    print(f"AER {result.aer:.3f}  precision {result.precision:.3f}  recall {result.recall:.3f}")
    return result


def gold_links(cfg: DictConfig, run: Run, sources: list[str], targets: list[str], units: str) -> Gold:
    """The gold links of each pair. Raises UserError, naming file and line, for one outside its pair."""
    gold = read_gold(cfg, len(sources), cfg.src)
    for number, ((sure, possible), source, target) in enumerate(
        zip(gold, sources, targets, strict=True), start=1
    ):
        num_src = len(run.tokenizer.source_side(source, units).labels)
        num_tgt = len(run.tokenizer.target_side(target, units).labels)
        for i, j in sorted(possible):
            if i >= num_src or j >= num_tgt:
                kind = "-" if (i, j) in sure else "p"
                link = f"{j}{kind}{i}" if cfg.flip_gold else f"{i}{kind}{j}"
                raise UserError(
                    f"{cfg.gold}:{number}: link {link} is out of range: the line has {num_src} {units} in {cfg.src} "
                    f"and {num_tgt} in {cfg.tgt}; see flip_gold for the order"
                )
    return gold


def read_gold(cfg: DictConfig, number: int, name: str) -> Gold:
    """The links of the gold file, which must have as many lines as `name`: `number`."""
    gold = alignment.read_alignments(cfg.gold)
    if len(gold) != number:
        raise UserError(f"{name} has {number} lines but {cfg.gold} has {len(gold)}")
    if cfg.flip_gold:
        gold = [({(i, j) for j, i in sure}, {(i, j) for j, i in possible}) for sure, possible in gold]
    return gold


main = align
