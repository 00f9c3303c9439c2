"""Length and coverage penalties of finished hypotheses (Wu et al. 2016, eq. 14).

score(Y, X) = log p(Y | X) / length_penalty(Y) + coverage_penalty(X, Y)
"""

from typing import Any

from torch import Tensor

# The least attention of a position in the penalty; it costs 13.8 beta nats.
COVERAGE_FLOOR = 1e-6


def length_penalty(length: Any, alpha: float) -> Any:
    """`((5 + |Y|) / 6) ** alpha` (Wu et al. 2016, eq. 14); |Y| counts EOS. Exactly 1 if alpha is 0."""
    return ((5.0 + length) / 6.0) ** alpha


def coverage_penalty(coverage: Tensor, src_mask: Tensor, beta: float) -> Tensor:
    """`beta * sum_{j real} log(min(sum_t a_tj, 1))` (Wu et al. 2016, eq. 14), never above 0.

    coverage [..., S] is `sum_t a_tj` over all steps, EOS included; `src_mask` [..., S] broadcasts. A sum below
    `COVERAGE_FLOOR` counts as `COVERAGE_FLOOR`, so that a position without attention does not give minus infinity.
    """
    return beta * coverage.clamp(COVERAGE_FLOOR, 1.0).log().masked_fill(~src_mask, 0.0).sum(dim=-1)
