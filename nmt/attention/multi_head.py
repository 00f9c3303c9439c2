"""Multi-head attention over a content score."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from nmt import kernels
from nmt.attention.base import Attended, Attention, content_score
from nmt.config.types import Count


class MultiHeadAttention(Attention):
    """`c_t = W_o [c_t1; …; c_tK]`: head k attends with `W_qk q_t` to keys `W_kk h_j` and values `W_vk h_j` (Vaswani
    et al. 2017, 3.2.2; in a recurrent decoder Chen et al. 2018).

    A head has query_size / K units. `content` builds the score, with parameters that all heads share: scaled dot
    products (Vaswani et al.) or additive (Chen et al.). `project_keys` projects the values too.
    """

    is_content_score = False

    def __init__(
        self, *, query_size: int, key_size: int, content: Callable[..., Attention], num_heads: Count
    ) -> None:
        if query_size % num_heads:
            raise ValueError(f"attention.num_heads must divide the query size {query_size}, got {num_heads}")
        head_size = query_size // num_heads
        score = content_score(content, query_size=head_size, key_size=head_size, user="multi-head attention")
        super().__init__(
            query_size=query_size,
            key_size=key_size,
            temperature=score.temperature,
            normalizer=score.normalizer,
        )
        self.content, self.num_heads = score, num_heads
        self.query_projection = kernels.Linear(query_size, query_size, bias=False)  # W_q of all heads
        self.key_projection = kernels.Linear(key_size, query_size, bias=False)  # W_k
        self.value_projection = kernels.Linear(key_size, query_size, bias=False)  # W_v
        self.output_projection = kernels.Linear(query_size, key_size, bias=False)  # W_o

    def project_keys(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of each head, both [B, K, S, …]."""
        keys = self._split(self.key_projection(states))
        projected = self.content.project_keys(keys.flatten(0, 1)).unflatten(0, keys.shape[:2])
        return projected, self._split(self.value_projection(states))

    def score(self, query: Tensor, keys: Any) -> Tensor:
        """Scores [B, K, T, S] of each head."""
        heads = self._split(self.query_projection(query))  # [B, K, T, d]
        return self.content.score(heads.flatten(0, 1), keys[0].flatten(0, 1)).unflatten(0, heads.shape[:2])

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
        # [B, K, T, S]
        weights = self.weigh(self.score(query, keys), mask[:, None, None], positions.unsqueeze(1))
        contexts = self.average(weights, keys[1]).transpose(1, 2).flatten(2)  # [B, T, K * d]
        return Attended(self.output_projection(contexts), weights.mean(dim=1), weights, past)

    def _split(self, x: Tensor) -> Tensor:
        """[B, X, K * d] as [B, K, X, d]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
