"""From attention weights to word alignments, their symmetrisation and error, and measures of the weights.

A link (i, j) joins source word i and target word j, both from 0 over whitespace words. Weights are [T, S], or
[target words, source words] once they are between words: NumPy arrays or tensors of any origin.
"""

from nmt.alignment.guide import piece_links
from nmt.alignment.links import (
    AlignmentScore,
    Links,
    format_pharaoh,
    parse_pharaoh,
    parse_talp,
    read_alignments,
    score_alignments,
)
from nmt.alignment.measures import (
    STATISTICS,
    agreement,
    broadest,
    concentration,
    diagonality,
    entropy,
    locality,
    most_attended,
    most_attended_overall,
    received,
    share_above,
    statistics,
)
from nmt.alignment.symmetrization import symmetrize
from nmt.alignment.weights import links_from_weights, shift_reading, words_from_pieces

__all__ = [
    "STATISTICS",
    "AlignmentScore",
    "Links",
    "agreement",
    "broadest",
    "concentration",
    "diagonality",
    "entropy",
    "format_pharaoh",
    "links_from_weights",
    "locality",
    "most_attended",
    "most_attended_overall",
    "parse_pharaoh",
    "parse_talp",
    "piece_links",
    "read_alignments",
    "received",
    "score_alignments",
    "share_above",
    "shift_reading",
    "statistics",
    "symmetrize",
    "words_from_pieces",
]
