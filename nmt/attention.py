"""Attention: a score between decoder queries and encoder states, and the weighted average it selects.

    e_tj = score(q_t, h_j)      a_t = softmax over real j of e_t      c_t = sum_j a_tj h_j

A new mechanism is one class here (its score) and one file in `configs/attention/`. A score knows nothing of
the decoder that uses it, and takes any number of queries at once: one step, the hypotheses of a beam, or a
whole target.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.masks import masked_softmax


class Attended(NamedTuple):
    """context [B, T, M] = sum_j weights_tj values_j; weights [B, T, S], each row summing to one."""

    context: Tensor
    weights: Tensor


class Attention(nn.Module, ABC):
    """One mechanism. Nothing is remembered on `self` between calls: project the keys once, then pass them."""

    def __init__(self, *, query_size: int, key_size: int) -> None:
        super().__init__()
        self.query_size = query_size
        self.key_size = key_size

    def project_keys(self, states: Tensor) -> Tensor:
        """What of the encoder states [B, S, key_size] can be computed once a sentence. Returns [B, S, K]."""
        return states

    @abstractmethod
    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores e_tj [B, T, S] of queries [B, T, query_size] against projected keys [B, S, K]."""

    def forward(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Attended:
        """Attend with query [B, T, query_size] to values [B, S, M] under mask [B, S] (True is real).

        The only place where scores are masked.
        """
        weights = masked_softmax(self.score(query, keys), mask.unsqueeze(1))  # [B, T, S]
        return Attended(weights @ values, weights)


class AdditiveAttention(Attention):
    """`e_tj = v^T tanh(W q_t + U h_j)` (Bahdanau et al. 2015, A.1.2). `size` is the width of v."""

    def __init__(self, *, query_size: int, key_size: int, size: int) -> None:
        super().__init__(query_size=query_size, key_size=key_size)
        self.query_projection = nn.Linear(query_size, size, bias=False)  # W
        self.key_projection = nn.Linear(key_size, size, bias=False)  # U
        self.v = nn.Parameter(torch.empty(size).uniform_(-1, 1) / math.sqrt(size))

    def project_keys(self, states: Tensor) -> Tensor:
        return self.key_projection(states)

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return additive_score(self.query_projection(query), keys, self.v)


class ConcatAttention(Attention):
    """`e_tj = v^T tanh(W [q_t; h_j])` (Luong et al. 2015, eq. 8). `size` is the width of v.

    W [size, query_size + key_size] is one matrix; its columns for h are applied once a sentence. As a function
    this equals the additive score with `W = [W U]`: what differs between the two papers is the wiring.
    """

    def __init__(self, *, query_size: int, key_size: int, size: int) -> None:
        super().__init__(query_size=query_size, key_size=key_size)
        self.projection = nn.Linear(query_size + key_size, size, bias=False)  # W
        self.v = nn.Parameter(torch.empty(size).uniform_(-1, 1) / math.sqrt(size))

    def project_keys(self, states: Tensor) -> Tensor:
        return F.linear(states, self.projection.weight[:, self.query_size :])

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        projected = F.linear(query, self.projection.weight[:, : self.query_size])
        return additive_score(projected, keys, self.v)


class DotAttention(Attention):
    """`e_tj = q_t^T h_j` (Luong et al. 2015, eq. 8). Raises ValueError where the two sizes differ."""

    def __init__(self, *, query_size: int, key_size: int) -> None:
        if query_size != key_size:
            raise ValueError(
                f"dot scores need query_size == key_size, got {query_size} and {key_size}: "
                "set model.encoder.output_size to the decoder's hidden_size"
            )
        super().__init__(query_size=query_size, key_size=key_size)

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)


class GeneralAttention(Attention):
    """`e_tj = q_t^T W h_j` (Luong et al. 2015, eq. 8)."""

    def __init__(self, *, query_size: int, key_size: int) -> None:
        super().__init__(query_size=query_size, key_size=key_size)
        self.key_projection = nn.Linear(key_size, query_size, bias=False)  # W

    def project_keys(self, states: Tensor) -> Tensor:
        return self.key_projection(states)

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)


def additive_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """`v^T tanh(q_t + k_j)` for projected queries [B, T, A] and keys [B, S, A]. Returns [B, T, S].

    Holds a [B, T, S, A] tensor while it computes.
    """
    return torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1)) @ v
