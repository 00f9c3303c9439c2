"""From attention weights to word alignments, their error against gold links, and statistics of the weights.

A link (i, j) joins source word i and target word j, both from 0 over whitespace words. Weights are [T, S], or
[target words, source words] once they are between words: NumPy arrays or tensors of any origin.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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
    row of which nothing remains.
    """
    pieces = np.asarray(weights, dtype=np.float64)
    sources, targets = np.asarray(src_words, dtype=int), np.asarray(tgt_words, dtype=int)
    by_source_word = np.zeros((len(targets), num_src_words))
    np.add.at(by_source_word.T, sources[sources >= 0], pieces[:, sources >= 0].T)
    remaining = by_source_word.sum(axis=1, keepdims=True)
    rows = np.divide(by_source_word, remaining, out=np.zeros_like(by_source_word), where=remaining > 0)
    sums = np.zeros((num_tgt_words, num_src_words))
    np.add.at(sums, targets[targets >= 0], rows[targets >= 0])
    num_pieces = np.bincount(targets[targets >= 0], minlength=num_tgt_words)
    return sums / np.maximum(num_pieces, 1)[:, None]


def links_from_weights(weights: Any) -> Links:
    """Each target word linked to its most attended source word (the first of equals); none for a row of zeros."""
    rows = np.asarray(weights)
    if rows.size == 0:
        return set()
    return {(int(i), j) for j, i in enumerate(rows.argmax(axis=1)) if rows[j, i] > 0}


def entropy(weights: Any) -> NDArray[np.floating]:
    """`-sum_j a_tj log a_tj` of each row [..., T, S], in nats; 0 log 0 is 0. Returns [..., T]."""
    values = np.asarray(weights, dtype=np.float64)
    logs = np.log(values, out=np.zeros_like(values), where=values > 0)
    return -(values * logs).sum(axis=-1)


def concentration(weights: Any) -> NDArray[np.floating]:
    """The largest weight of each row [..., T, S]. Returns [..., T]."""
    return np.asarray(weights, dtype=np.float64).max(axis=-1)


def received(weights: Any) -> NDArray[np.floating]:
    """`sum_t a_tj`, what each source position [..., S] gets from the whole target (Tu et al. 2016, coverage)."""
    return np.asarray(weights, dtype=np.float64).sum(axis=-2)


def statistics(weights: Iterable[Any]) -> dict[str, float]:
    """Means over sentences' weights [T, S] (each without padding).

    entropy: nats, over all target pieces. concentration: the largest weight, over all target pieces. coverage:
    the share of source positions that receive at least half a piece's worth of attention in all.
    """
    entropies, largest, covered = [], [], []
    for each in weights:
        entropies.append(entropy(each))
        largest.append(concentration(each))
        covered.append(received(each) >= 0.5)
    return {
        "entropy": float(np.concatenate(entropies).mean()),
        "concentration": float(np.concatenate(largest).mean()),
        "coverage": float(np.concatenate(covered).mean()),
    }
