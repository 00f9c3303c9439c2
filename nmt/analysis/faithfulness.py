"""How faithful explanations are: the probability lost without the pieces that they name, and their agreement."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from nmt import alignment
from nmt.analysis.explanation import Explanation, explain
from nmt.analysis.teacher_forcing import ForcedPair
from nmt.config.types import Explainer
from nmt.run.run import Run

SHARES = (0.1, 0.2, 0.3, 0.5)  # of the source pieces
RANDOM = "random"  # scores drawn by chance, to compare with
MEASURES = ("comprehensiveness", "sufficiency", "tau", "aer")


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


def measure_faithfulness(
    run: Run, sources: Sequence[str], targets: Sequence[str], methods: Sequence[Any], *, seed: int = 1
) -> dict[str, Faithfulness]:
    """Measure each method, and scores drawn at random, on given pairs. Targets are forced."""
    draw = np.random.default_rng(seed)
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
    found: dict[str, Faithfulness], golds: Sequence[str] | None, num_bootstrap: int, seed: int = 1
) -> dict[str, dict[str, Any]]:
    """The measures of each method with half the width of their 95 % intervals, by bootstrap over sentences.

    `golds` has the gold links of each sentence (`alignment.parse_talp`); without it there is no `aer`.
    """
    draw = np.random.default_rng(seed)
    number = len(next(iter(found.values())).tau)
    samples = draw.integers(number, size=(num_bootstrap, number))
    links = None if golds is None else list(map(alignment.parse_talp, golds))

    def measure(each: Faithfulness, key: str, rows: Any) -> float:
        if key != "aer":
            return float(getattr(each, key)[rows].mean())
        assert links is not None
        chosen = [(each.links[row], *links[row]) for row in rows]
        return alignment.score_alignments(*map(list, zip(*chosen, strict=True))).aer

    result: dict[str, dict[str, Any]] = {}
    for name, each in found.items():
        result[name] = {"lost": each.lost.mean(axis=0).tolist()}
        for key in MEASURES if links is not None else MEASURES[:-1]:
            resampled = [measure(each, key, rows) for rows in samples] or [0.0]
            low, high = np.percentile(resampled, [2.5, 97.5])
            score = measure(each, key, np.arange(number))
            result[name][key] = {"score": score, "ci": float(high - low) / 2}
    return result


def faithfulness_rows(result: dict[str, dict[str, Any]]) -> list[list[str]]:
    """A header and a row per method."""
    measures = [each for each in MEASURES if each in next(iter(result.values()))]
    names = {"tau": "tau with occlusion", "aer": "AER"}
    rows = [["explanation", *(names.get(each, each) for each in measures)]]
    for name, each in result.items():
        cells = [f"{each[key]['score']:.3f} ± {each[key]['ci']:.3f}" for key in measures]
        rows.append([name.replace("_", " "), *cells])
    return rows
