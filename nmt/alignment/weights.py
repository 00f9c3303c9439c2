"""Conversions between attention weights of pieces, weights of words, and links.

Weights are [T, S] between pieces, or [target words, source words]: NumPy arrays or tensors of any library.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nmt.alignment.links import Links


def as_array(weights: Any) -> NDArray[np.float64]:
    """Weights as a float64 NumPy array; a tensor may be on any device, of any precision, and in a graph.

    A tuple of tensors (one per layer, as other libraries return them) is stacked: [L, ...].
    """
    if hasattr(weights, "detach"):
        weights = weights.detach().cpu().double().numpy()
    elif isinstance(weights, list | tuple):
        weights = [as_array(each) for each in weights]
    return np.asarray(weights, dtype=np.float64)


def words_from_pieces(
    weights: Any,
    tgt_words: Sequence[int],
    src_words: Sequence[int],
    *,
    num_tgt_words: int,
    num_src_words: int,
) -> NDArray[np.floating]:
    """Turn weights between pieces [T, S] into weights between words [num_tgt_words, num_src_words].

    `tgt_words` [T] and `src_words` [S] give the word of each piece, -1 if it is not of a word (end of sentence).
    These positions are left out, and each row is divided by its remaining sum. Then a source word has the sum of its
    pieces, and a target word the mean of the rows of its pieces. A word without pieces has zeros, and so has a row
    with nothing left. Raises ValueError if the lengths differ.
    """
    pieces = as_array(weights)
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


def fill_gaps(numbers: Sequence[int]) -> list[int]:
    """Replace each -1 among numbers of words by the number of the next piece, or else of the piece before."""
    filled = list(numbers)
    for places in (range(len(filled) - 2, -1, -1), range(1, len(filled))):
        for place in places:
            if filled[place] < 0:
                filled[place] = filled[place + (1 if places.step < 0 else -1)]
    return filled


def shift_reading(weights: Any, reading: Literal["emitted", "fed"]) -> NDArray[np.floating]:
    """The rows of the target pieces, [T - 1, S], from rows [T, S]. The last row emits the end of sentence.

    - emitted: row t belongs to the piece that step t emits (Bahdanau et al. 2015, figure 3).
    - fed: row t belongs to the piece that step t is fed, so a piece has the row after the row that emits it (Luong et
      al. 2015, section 5.4).

    Raises ValueError for another reading.
    """
    if reading not in ("emitted", "fed"):
        raise ValueError(f"a reading is emitted or fed, not {reading!r}")
    rows = as_array(weights)
    return rows[:-1] if reading == "emitted" else rows[1:]


def links_from_weights(
    weights: Any,
    method: Literal["argmax", "mutual", "threshold"] = "argmax",
    *,
    threshold: float = 0.3,
    sizes: Sequence[int] | None = None,
) -> Links:
    """Links (source word, target word) from weights between words; a weight of zero gives no link.

    argmax: from each target word to its most attended source word (the first of equals).
    mutual: the links of argmax for which no other target word attends more to that source word.
    threshold: every pair with a weight of at least `threshold`.

    `sizes` are those of the source's groups (`Side`), which are linked as a whole. Raises ValueError for another
    method.
    """
    rows = as_array(weights)
    if rows.size == 0:
        return set()
    if sizes is not None and len(sizes) < rows.shape[1]:
        group_of = np.arange(len(sizes)).repeat(sizes)
        groups = rows @ np.eye(len(sizes))[group_of]
        links = links_from_weights(groups, method, threshold=threshold)
        return {(int(i), j) for group, j in links for i in np.flatnonzero(group_of == group)}
    if method == "threshold":
        return {(int(i), int(j)) for j, i in np.argwhere((rows >= threshold) & (rows > 0))}
    links = {(int(i), j) for j, i in enumerate(rows.argmax(axis=1)) if rows[j, i] > 0}
    if method == "argmax":
        return links
    if method == "mutual":
        return {(i, j) for i, j in links if rows[j, i] == rows[:, i].max()}
    raise ValueError(f"a method is argmax, mutual or threshold, not {method!r}")


def piece_links(links: Links, tgt_words: Sequence[int], src_words: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs (t, s) of target and source pieces of linked words, in order.

    `links` (i, j) join source word i and target word j. `tgt_words` [T] and `src_words` [S] give the word of each
    piece, -1 if it is not of a word (end of sentence), as in `words_from_pieces`. These pairs guide attention (Chen
    et al. 2016).
    """
    pieces_of: dict[int, list[int]] = {}
    for s, word in enumerate(src_words):
        pieces_of.setdefault(word, []).append(s)
    sources_of: dict[int, list[int]] = {}
    for i, j in sorted(links):
        sources_of.setdefault(j, []).extend(pieces_of.get(i, []))
    return [(t, s) for t, word in enumerate(tgt_words) for s in sources_of.get(word, [])]
