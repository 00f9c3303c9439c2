"""Multiplicative attention: scores that are products of a query and a state."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from nmt import kernels
from nmt.attention.base import Attention, Normalizer
from nmt.config.types import Positive


class DotAttention(Attention):
    """`e_tj = q_t^T h_j` (Luong et al. 2015, section 3.1). Raises ValueError if the two sizes differ."""

    def __init__(
        self, *, query_size: int, key_size: int, temperature: Positive, normalizer: Normalizer
    ) -> None:
        if query_size != key_size:
            raise ValueError(
                f"dot scores need query_size == key_size, got {query_size} and {key_size}: "
                "set encoder.output_size to decoder.size"
            )
        super().__init__(
            query_size=query_size, key_size=key_size, temperature=temperature, normalizer=normalizer
        )

    def score(self, query: Tensor, keys: Any) -> Tensor:
        return kernels.product(query, keys, transposed=True)


class ScaledDotAttention(DotAttention):
    """`e_tj = q_t^T h_j / sqrt(d)`, d = query_size (Vaswani et al. 2017, eq. 1).

    Unscaled products have variance d, which saturates the softmax if d is large.
    """

    def score(self, query: Tensor, keys: Any) -> Tensor:
        return super().score(query / math.sqrt(self.query_size), keys)


class GeneralAttention(Attention):
    """`e_tj = q_t^T W h_j` (Luong et al. 2015, section 3.1)."""

    def __init__(
        self, *, query_size: int, key_size: int, temperature: Positive, normalizer: Normalizer
    ) -> None:
        super().__init__(
            query_size=query_size, key_size=key_size, temperature=temperature, normalizer=normalizer
        )
        self.key_projection = kernels.Linear(key_size, query_size, bias=False)  # W

    def project_keys(self, states: Tensor) -> Tensor:
        return self.key_projection(states)

    def score(self, query: Tensor, keys: Any) -> Tensor:
        return kernels.product(query, keys, transposed=True)


class ScaledGeneralAttention(GeneralAttention):
    """`e_tj = g q_t^T W h_j` with a learned scalar g that starts at 1.

    This is `scaled_luong` of the TensorFlow NMT tutorial (`LuongAttention(scale=True)`).
    """

    def __init__(
        self, *, query_size: int, key_size: int, temperature: Positive, normalizer: Normalizer
    ) -> None:
        super().__init__(
            query_size=query_size, key_size=key_size, temperature=temperature, normalizer=normalizer
        )
        self.g = nn.Parameter(torch.ones(()))

    def project_keys(self, states: Tensor) -> Tensor:
        return self.g * super().project_keys(states)
