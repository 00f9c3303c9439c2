"""How faithful explanations are: the probability lost without the pieces that they name, and their agreement."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple, NotRequired, cast

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from tqdm import tqdm
from typing_extensions import TypedDict

from nmt import alignment, plotting
from nmt.analysis.explanation import Explanation, explain
from nmt.analysis.teacher_forcing import ForcedPair
from nmt.comparison.runs import WEIGHTS, ScoredRun
from nmt.config.types import Count, Explainer, check_value
from nmt.errors import UserError
from nmt.run.paths import EVALUATIONS, score_files
from nmt.run.run import Run
from nmt.run.scores import read_scores

SHARES = (0.1, 0.2, 0.3, 0.5)  # of the source pieces
RANDOM = "random"  # scores drawn by chance, to compare with
SEED = 1  # of these scores, and of the bootstrap
MEASURES = ("comprehensiveness", "sufficiency", "tau", "aer")
_MADE_WITH = ("references", *WEIGHTS)  # keys of metrics.json


class Faithfulness(NamedTuple):
    """Measures of a method on sentences.

    comprehensiveness [N]: the mean over target pieces and SHARES of p(y_t | x) - p(y_t | x without the pieces with the
    highest scores), which become unknown (DeYoung et al. 2020, 4). More is better.
    sufficiency [N]: the same with those pieces alone left. Less is better.
    lost [N, len(SHARES)]: the parts of comprehensiveness.
    tau [N]: the mean over target pieces of Kendall's tau-b with the scores of occlusion.
    links: the source word with the largest score for each target word, for each sentence.
    """

    comprehensiveness: NDArray[np.floating]
    sufficiency: NDArray[np.floating]
    lost: NDArray[np.floating]
    tau: NDArray[np.floating]
    links: list[alignment.Links]


class Interval(TypedDict):
    """A score with half the width of its 95 % interval."""

    score: float
    ci: float


class Summary(TypedDict):
    """The measures of a method over all sentences, as `metrics.json` has them; see `Faithfulness`."""

    num_sentences: Count
    lost: Annotated[list[float], Field(min_length=len(SHARES), max_length=len(SHARES))]
    comprehensiveness: Interval
    sufficiency: Interval
    tau: Interval
    aer: NotRequired[Interval]


def measure_faithfulness(
    run: Run, sources: Sequence[str], targets: Sequence[str], methods: Sequence[Any]
) -> dict[str, Faithfulness]:
    """Measure each method, and scores drawn at random, on given pairs. Targets are forced."""
    draw = np.random.default_rng(SEED)
    rows: dict[str, list[Any]] = {name: [] for name in (*methods, RANDOM)}
    for source, target in tqdm(
        list(zip(sources, targets, strict=True)), desc="explain", unit="lines", disable=None
    ):
        occlusion = explain(run, source, target, "occlusion")
        for name in rows:
            found = occlusion
            if name == RANDOM:
                found = occlusion._replace(source=draw.random(occlusion.source.shape))
            elif name != "occlusion":
                found = explain(run, source, target, cast(Explainer, name))
            lost, left = _deletion(run, source, target, found)
            taus = [kendall_tau(*each) for each in zip(found.source, occlusion.source, strict=True)]
            links = alignment.links_from_weights(run.between_words(found.weights, source, target))
            rows[name].append((lost.mean(), left.mean(), lost, np.mean(taus), links))
    measured = {}
    for name, each in rows.items():
        *arrays, chosen = zip(*each, strict=True)
        measured[name] = Faithfulness(*map(np.array, arrays), list(chosen))  # type: ignore[call-arg, arg-type]
    return measured


@torch.inference_mode()
def _deletion(
    run: Run, source: str, target: str, found: Explanation
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Mean probability lost for each of SHARES without the pieces of the highest scores, and with these alone."""
    pair = ForcedPair.of(run, source, target)
    order = np.argsort(-found.source, axis=1, kind="stable")
    ranks = torch.from_numpy(np.argsort(order, axis=1)).to(run.device)  # [T, S]
    lost = np.zeros((2, len(SHARES)))
    for number, share in enumerate(SHARES):
        chosen = ranks < max(1, round(share * len(pair.src)))
        for side, unknown in enumerate((chosen, ~chosen)):
            changed = torch.where(unknown, pair.unk_id, pair.src)  # [T, S]: a source for each target piece
            log_probs = pair.log_probs(run.translator, src=changed).diagonal()  # [T]
            lost[side, number] = (np.exp(found.log_probs) - log_probs.double().exp().cpu().numpy()).mean()
    return lost[0], lost[1]


def kendall_tau(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """tau-b = (concordant - discordant) / sqrt((pairs - ties of one) (pairs - ties of other)); 0 if all are ties."""
    above = np.triu_indices(len(one), 1)
    signs = [np.sign(each[:, None] - each[None])[above] for each in (one, other)]
    untied = np.sqrt((signs[0] != 0).sum() * (signs[1] != 0).sum())
    return float((signs[0] * signs[1]).sum() / untied) if untied else 0.0


def summarize_faithfulness(
    found: dict[str, Faithfulness], golds: Sequence[str] | None, num_bootstrap: int
) -> dict[str, Summary]:
    """The measures of each method, with intervals by bootstrap over sentences.

    `golds` has the gold links of each sentence (`alignment.parse_talp`); without it there is no `aer`.
    """
    draw = np.random.default_rng(SEED)
    number = len(next(iter(found.values())).tau)
    samples = draw.integers(number, size=(num_bootstrap, number))
    links = None if golds is None else list(map(alignment.parse_talp, golds))

    def measure(each: Faithfulness, key: str, rows: Any) -> float:
        if key != "aer":
            return float(getattr(each, key)[rows].mean())
        assert links is not None
        chosen = [(each.links[row], *links[row]) for row in rows]
        return alignment.score_alignments(*map(list, zip(*chosen, strict=True))).aer

    result: dict[str, Any] = {}
    for name, each in found.items():
        result[name] = {"num_sentences": number, "lost": each.lost.mean(axis=0).tolist()}
        for key in MEASURES if links is not None else MEASURES[:-1]:
            resampled = [measure(each, key, rows) for rows in samples] or [0.0]
            low, high = np.percentile(resampled, [2.5, 97.5])
            score = measure(each, key, np.arange(number))
            result[name][key] = {"score": score, "ci": float(high - low) / 2}
    return result


def read_faithfulness(run: ScoredRun, split: str) -> dict[str, Summary]:
    """The measures that `evaluate.py explain=[…]` stored in a run's directory, of each method the newest.

    Files that are damaged, or of another checkpoint or other text than the run's scores, are left out.
    """
    file = score_files(run.directory, split)[0]
    others = run.directory.glob(f"{EVALUATIONS}/*/{file.name}")
    found: dict[str, Summary] = {}
    for each in (file, *sorted(others, key=lambda other: other.stat().st_mtime)):
        with suppress(UserError):
            scores = read_scores(each)
            check_value(dict[str, Summary], scores.get("explanations", {}), "explanations")
            if all(scores.get(key) == run.metrics.get(key) for key in _MADE_WITH):
                found |= scores.get("explanations", {})
    return found


def faithfulness_rows(found: Mapping[str, Mapping[str, Summary]]) -> list[list[str]]:
    """A header and a row per run and method: the run, the method, the number of sentences and the measures."""
    every = [(run, method, each) for run, result in found.items() for method, each in result.items()]
    measures = [key for key in MEASURES if any(key in each for _, _, each in every)]
    names = {"tau": "tau with occlusion", "aer": "AER"}
    rows = [["run", "explanation", "sentences", *(names.get(key, key) for key in measures)]]
    for run, method, each in every:
        intervals: list[Any] = [each.get(key) for key in measures]
        cells = [f"{one['score']:.3f} ± {one['ci']:.3f}" if one else "–" for one in intervals]
        rows.append([run, method.replace("_", " "), str(each["num_sentences"]), *cells])
    return rows


def faithfulness_plot(found: Mapping[str, Mapping[str, Summary]]) -> Figure:
    """The probability of a target piece that is lost as more of the pieces that a method names become unknown."""
    curves = {
        f"{run and f'{run}, '}{method.replace('_', ' ')}": [((0.0, *SHARES), [0.0, *each["lost"]])]
        for run, result in found.items()
        for method, each in result.items()
    }
    share = "share of the source pieces that become unknown"
    figure: Figure = plotting.learning_curves(curves, ylabel="probability lost", xlabel=share)
    return figure
