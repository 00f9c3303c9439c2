"""Attention by position: location scores, and local attention within a window (Luong et al. 2015)."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from nmt import kernels
from nmt.attention.base import Attended, Attention, Normalizer, content_score
from nmt.config.types import Count, Positive


class LocationAttention(Attention):
    """`e_t = W q_t`: scores from the target state alone (Luong et al. 2015, 3.1, location).

    W has a row for each of `max_positions` source positions; later positions have weight 0, as in the paper.
    """

    is_content_score = False

    def __init__(
        self,
        *,
        query_size: int,
        key_size: int,
        temperature: Positive,
        normalizer: Normalizer,
        max_positions: Count,
    ) -> None:
        super().__init__(
            query_size=query_size, key_size=key_size, temperature=temperature, normalizer=normalizer
        )
        self.projection = kernels.Linear(query_size, max_positions, bias=False)  # W

    def score(self, query: Tensor, keys: Any) -> Tensor:
        length = keys.size(1)
        return nn.functional.pad(self.projection(query), (0, length), value=float("-inf"))[..., :length]


class LocalAttention(Attention):
    """Attention within `window` D source positions of a centre p_t (Luong et al. 2015, section 3.2).

    `a_tj` is the weight that the content score gives j among the real positions with `|j - p_t| <= D`, and 0
    elsewhere. Positions are counted from 0. All scores are computed: for sentences, a dense product with a mask is
    faster than a gather. Temperature and normalizer are those of the content score.
    """

    is_content_score = False
    gives_zeros = True  # outside the window, whatever the score

    def __init__(
        self, *, query_size: int, key_size: int, content: Callable[..., Attention], window: Count
    ) -> None:
        score = content_score(content, query_size=query_size, key_size=key_size, user="local attention")
        super().__init__(
            query_size=query_size,
            key_size=key_size,
            temperature=score.temperature,
            normalizer=score.normalizer,
        )
        self.content, self.window = score, window

    @abstractmethod
    def centres(self, query: Tensor, lengths: Tensor, positions: Tensor) -> Tensor:
        """Centres p_t [B, T] for queries [B, T, query_size] at positions [B, T] in sources of lengths [B]."""

    def project_keys(self, states: Tensor) -> Any:
        return self.content.project_keys(states)

    def score(self, query: Tensor, keys: Any) -> Tensor:
        return self.content.score(query, keys)

    def forward(
        self,
        query: Tensor,
        keys: Any,
        values: Tensor,
        mask: Tensor,
        *,
        positions: Tensor,
        past: Tensor | None,
    ) -> Attended:
        centres = self.centres(query, mask.sum(dim=1), positions)  # [B, T]
        distance = torch.arange(mask.size(1), device=mask.device) - centres.unsqueeze(-1)  # [B, T, S]
        within = (distance.detach().abs() <= self.window) & mask.unsqueeze(1)
        weights = self.weigh(self.score(query, keys), within, positions, self.factor(distance))
        return Attended(self.average(weights, values), weights, None, past)

    def factor(self, distance: Tensor) -> Tensor | None:
        """Factor of the weights [B, T, S], given the distance of each position from the centre; None is 1."""
        return None


class MonotonicLocalAttention(LocalAttention):
    """`local_m`: `p_t = t`, or the last real position if t is beyond the end of the source."""

    def centres(self, query: Tensor, lengths: Tensor, positions: Tensor) -> Tensor:
        return torch.minimum(positions, lengths.unsqueeze(1) - 1)


class PredictiveLocalAttention(LocalAttention):
    """`local_p`: `p_t = |x| sigmoid(v_p^T tanh(W_p q_t))` (eq. 9), and a Gaussian around it (eq. 10):

        a_tj = softmax_j(e_t) exp(-(j - p_t)^2 / (2 sigma^2))        sigma = D / 2

    As published, its weights sum to less than 1, unlike those of any other mechanism.
    """

    def __init__(
        self, *, query_size: int, key_size: int, content: Callable[..., Attention], window: Count
    ) -> None:
        super().__init__(query_size=query_size, key_size=key_size, content=content, window=window)
        self.position_projection = kernels.Linear(query_size, query_size, bias=False)  # W_p
        self.position_score = kernels.Linear(query_size, 1, bias=False)  # v_p

    def centres(self, query: Tensor, lengths: Tensor, positions: Tensor) -> Tensor:
        score = self.position_score(torch.tanh(self.position_projection(query))).squeeze(-1)  # [B, T]
        # bfloat16 has no fractions above 128, and not all whole numbers above 256.
        share = torch.sigmoid(score.to(torch.promote_types(score.dtype, torch.float32)))
        return lengths.unsqueeze(1) * share

    def factor(self, distance: Tensor) -> Tensor:
        sigma = self.window / 2
        return torch.exp(-distance.square() / (2 * sigma**2))
