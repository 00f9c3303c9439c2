"""Word alignments by attention weights and by counting, symmetrised and scored, and measures of the weights.

A link (i, j) joins source word i and target word j, both from 0 over whitespace words. Weights are [T, S] between
pieces, or [target words, source words]: NumPy arrays or tensors of any library.
"""

from nmt.alignment.arrays import read_arrays, saving_weights
from nmt.alignment.ibm import align_words
from nmt.alignment.importance import (
    SEPARATOR,
    Importance,
    score_importance,
    sentence_weights,
    sentences_of,
    weighed_words,
)
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
    concentration,
    diagonality,
    entropy,
    locality,
    source_coverage,
    statistics,
)
from nmt.alignment.symmetrization import symmetrize
from nmt.alignment.units import (
    Side,
    choose_units,
    make_side,
    split_units,
    weights_between,
)
from nmt.alignment.weights import fill_gaps, links_from_weights, piece_links, shift_reading, words_from_pieces
