"""From attention weights to word alignments, their error against gold links, and statistics of the weights.

A link (i, j) joins source word i and target word j, both from 0 over whitespace words. Weights are [T, S], or
[target words, source words] once they are between words: NumPy arrays or tensors of any origin.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.errors import UserError

Links = set[tuple[int, int]]


def parse_pharaoh(line: str) -> Links:
    """The links of `0-0 1-2`. Raises UserError naming the link that is none."""
    sure, possible = parse_talp(line)
    if sure != possible:
        raise UserError(f"a Pharaoh line has links i-j only, not {line.strip()!r}")
    return sure


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """`0-0 1-2`, sorted."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def parse_talp(line: str) -> tuple[Links, Links]:
    """Sure links (`i-j`) and possible ones (`ipj`); every sure link is possible too. Raises UserError."""
    sure: Links = set()
    possible: Links = set()
    for text in line.split():
        match = re.fullmatch(r"(\d+)([-p])(\d+)", text)
        if match is None:
            raise UserError(f"{text!r} is no link: links are i-j (sure) or ipj (possible), from 0")
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return sure, possible


def read_alignments(path: str | Path) -> list[tuple[Links, Links]]:
    """Sure and possible links of each line of a `.talp` or Pharaoh file; an empty line is a pair without links.

    Raises UserError naming the file, and the line that is none.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if lines[-1] == "":
        lines.pop()
    pairs = []
    for number, line in enumerate(lines, start=1):
        try:
            pairs.append(parse_talp(line))
        except UserError as error:
            raise UserError(f"{path}:{number}: {error}") from None
    return pairs


class AlignmentScore(NamedTuple):
    """Alignment error rate, precision and recall over a corpus, each from 0 to 1."""

    aer: float
    precision: float
    recall: float


def score_alignments(
    hypotheses: Sequence[Links], sures: Sequence[Links], possibles: Sequence[Links]
) -> AlignmentScore:
    """Precision, recall and error against sure links S and possible links P, S within P (Och & Ney 2003).

        AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)
        precision = |A and P| / |A|        recall = |A and S| / |S|

    Counts are summed over the corpus first. Where there is nothing to find and nothing was found, AER is 0 and
    the others are 1. Raises ValueError where the counts of sentences differ.
    """
    num_links = num_sure = num_in_sure = num_in_possible = 0
    for found, sure, possible in zip(hypotheses, sures, possibles, strict=True):
        num_links += len(found)
        num_sure += len(sure)
        num_in_sure += len(found & sure)
        num_in_possible += len(found & (possible | sure))
    total = num_links + num_sure
    return AlignmentScore(
        aer=1 - (num_in_sure + num_in_possible) / total if total else 0.0,
        precision=num_in_possible / num_links if num_links else 1.0,
        recall=num_in_sure / num_sure if num_sure else 1.0,
    )


def words_from_pieces(
    weights: Any,
    tgt_words: Sequence[int],
    src_words: Sequence[int],
    *,
    num_tgt_words: int,
    num_src_words: int,
) -> NDArray[np.floating]:
    """Weights between pieces [T, S] as weights between words [num_tgt_words, num_src_words].

    `tgt_words` [T] and `src_words` [S] give the word of each piece, -1 for what is no word (end of sentence).
    Those positions are left out and each row is divided by what remains; then a source word has the sum of
    its pieces, and a target word the mean of its pieces' rows. A word without pieces has zeros, and so has a
    row of which nothing remains. Raises ValueError where the lengths differ.
    """
    pieces = _array(weights)
    sources, targets = np.asarray(src_words, dtype=int), np.asarray(tgt_words, dtype=int)
    if pieces.shape != (len(targets), len(sources)):
        raise ValueError(
            f"weights are {pieces.shape} but there are {len(targets)} target and {len(sources)} source pieces"
        )
    by_source_word = np.zeros((len(targets), num_src_words))
    np.add.at(by_source_word.T, sources[sources >= 0], pieces[:, sources >= 0].T)
    remaining = by_source_word.sum(axis=1, keepdims=True)
    rows = np.divide(by_source_word, remaining, out=np.zeros_like(by_source_word), where=remaining > 0)
    sums = np.zeros((num_tgt_words, num_src_words))
    np.add.at(sums, targets[targets >= 0], rows[targets >= 0])
    num_pieces = np.bincount(targets[targets >= 0], minlength=num_tgt_words)
    return sums / np.maximum(num_pieces, 1)[:, None]


def shift_reading(weights: Any, reading: Literal["emitted", "fed"]) -> NDArray[np.floating]:
    """The row of each target piece, [T - 1, S], out of rows [T, S] of which the last emits the end of sentence.

    emitted: row t belongs to the piece that step t emits (Bahdanau et al. 2015, figure 3). fed: row t belongs to
    the piece that step t is fed, so that each piece has the row after its own (Luong et al. 2015, section 5.4).
    Raises ValueError for another reading.
    """
    if reading not in ("emitted", "fed"):
        raise ValueError(f"a reading is emitted or fed, not {reading!r}")
    rows = _array(weights)
    return rows[:-1] if reading == "emitted" else rows[1:]


def links_from_weights(
    weights: Any, method: Literal["argmax", "mutual", "threshold"] = "argmax", *, threshold: float = 0.3
) -> Links:
    """Links (source word, target word) out of weights between words; none for weights of zero.

    argmax: each target word to its most attended source word (the first of equals). mutual: those of them where
    no other target word attends more to that source word. threshold: every pair of at least `threshold`.
    Raises ValueError for another method.
    """
    rows = _array(weights)
    if rows.size == 0:
        return set()
    if method == "threshold":
        return {(int(i), int(j)) for j, i in np.argwhere((rows >= threshold) & (rows > 0))}
    links = {(int(i), j) for j, i in enumerate(rows.argmax(axis=1)) if rows[j, i] > 0}
    if method == "argmax":
        return links
    if method == "mutual":
        return {(i, j) for i, j in links if rows[j, i] == rows[:, i].max()}
    raise ValueError(f"a method is argmax, mutual or threshold, not {method!r}")


def entropy(weights: Any) -> NDArray[np.floating]:
    """`-sum_j a_tj log a_tj` of each row [..., T, S], in nats; 0 log 0 is 0. Returns [..., T]."""
    values = _array(weights)
    logs = np.log(values, out=np.zeros_like(values), where=values > 0)
    return -(values * logs).sum(axis=-1)


def concentration(weights: Any) -> NDArray[np.floating]:
    """The largest weight of each row [..., T, S]. Returns [..., T]."""
    return _array(weights).max(axis=-1)


def received(weights: Any) -> NDArray[np.floating]:
    """`sum_t a_tj`, what each source position [..., S] gets from the whole target (Tu et al. 2016, coverage)."""
    return _array(weights).sum(axis=-2)


def diagonality(weights: Any) -> float:
    """Correlation of the target position t with the expected source position `sum_j j a_tj` of rows [T, S].

    1 where attention moves evenly from left to right, -1 where it moves back, 0 where it does not move.
    """
    values = _array(weights)
    expected = values @ np.arange(values.shape[1])
    if len(expected) < 2 or np.ptp(expected) < 1e-6:
        return 0.0
    return float(np.corrcoef(np.arange(len(expected)), expected)[0, 1])


def statistics(weights: Iterable[Any]) -> dict[str, float]:
    """Means over sentences' weights [T, S] (each without padding).

    entropy: nats, over all target pieces. concentration: the largest weight, over all target pieces. coverage:
    the share of source positions that receive at least half a piece's worth of attention in all. diagonality:
    over sentences. Raises ValueError where there are none.
    """
    entropies, largest, covered, diagonal = [], [], [], []
    for each in weights:
        entropies.append(entropy(each))
        largest.append(concentration(each))
        covered.append(received(each) >= 0.5)
        diagonal.append(diagonality(each))
    if not entropies:
        raise ValueError("no weights: there are no statistics of 0 sentences")
    return {
        "entropy": float(np.concatenate(entropies).mean()),
        "concentration": float(np.concatenate(largest).mean()),
        "coverage": float(np.concatenate(covered).mean()),
        "diagonality": float(np.mean(diagonal)),
    }


def _array(weights: Any) -> NDArray[np.float64]:
    """Weights as float64 NumPy; a tensor may be on any device, of any precision, and in a graph."""
    if hasattr(weights, "detach"):
        weights = weights.detach().cpu().double().numpy()
    return np.asarray(weights, dtype=np.float64)
