"""Attention: a score between decoder queries and encoder states, and the weighted average it selects.

    e_tj = score(q_t, h_j)      a_t = softmax over real j of e_t      c_t = sum_j a_tj h_j

A new mechanism is one class here (for most, only its score) and one file in `configs/attention/`. A mechanism
knows nothing of the decoder that uses it, and takes any number of queries at once: one step, the hypotheses
of a beam, or a whole target.
"""

from nmt.attention.additive import (
    AdditiveAttention,
    ConcatAttention,
    CoverageAttention,
    NormedAdditiveAttention,
    additive_score,
    chunked_additive_score,
)
from nmt.attention.base import Attended, Attention, no_attention
from nmt.attention.multi_head import MultiHeadAttention
from nmt.attention.multiplicative import (
    DotAttention,
    GeneralAttention,
    ScaledDotAttention,
    ScaledGeneralAttention,
)
from nmt.attention.override import Override, fixed_rows, override_attention
from nmt.attention.positional import (
    LocalAttention,
    LocationAttention,
    MonotonicLocalAttention,
    PredictiveLocalAttention,
)
from nmt.attention.two_level import HierarchicalAttention, SentenceAttention
