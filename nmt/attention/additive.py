"""Additive attention: scores by a hidden layer, `v^T tanh(…)`."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt import kernels
from nmt.attention.base import Attended, Attention, Normalizer
from nmt.config.types import Count, Positive

CHUNK = 2**19  # most elements of a chunk [B, C, S, A]: 2 MB of float32, about a core's cache
WHOLE = 2**23  # up to this many elements the plain form is faster: it does not compute them twice


class AdditiveAttention(Attention):
    """`e_tj = v^T tanh(W q_t + U h_j)` (Bahdanau et al. 2015, A.1.2). `size` is the width of v."""

    def __init__(
        self, *, query_size: int, key_size: int, temperature: Positive, normalizer: Normalizer, size: Count
    ) -> None:
        super().__init__(
            query_size=query_size, key_size=key_size, temperature=temperature, normalizer=normalizer
        )
        self.query_projection = kernels.Linear(query_size, size, bias=False)  # W
        self.key_projection = kernels.Linear(key_size, size, bias=False)  # U
        self.v = nn.Parameter(torch.empty(size).uniform_(-1, 1) / math.sqrt(size))

    def project_keys(self, states: Tensor) -> Any:
        return self.key_projection(states)

    def score(self, query: Tensor, keys: Any) -> Tensor:
        return best_additive_score(self.query_projection(query), keys, self.v)


class NormedAdditiveAttention(AdditiveAttention):
    """`e_tj = g v^T/|v| tanh(W q_t + U h_j + b)`: `normed_bahdanau` of the TensorFlow NMT tutorial.

    The weight normalisation of Salimans & Kingma (2016) on v; g starts at `sqrt(1 / size)` and b at 0, as in
    `BahdanauAttention(normalize=True)`.
    """

    def __init__(
        self, *, query_size: int, key_size: int, temperature: Positive, normalizer: Normalizer, size: Count
    ) -> None:
        super().__init__(
            query_size=query_size,
            key_size=key_size,
            temperature=temperature,
            normalizer=normalizer,
            size=size,
        )
        self.g = nn.Parameter(torch.tensor(math.sqrt(1 / size)))
        self.b = nn.Parameter(torch.zeros(size))

    def score(self, query: Tensor, keys: Any) -> Tensor:
        v = self.g * self.v / self.v.norm()
        return best_additive_score(self.query_projection(query) + self.b, keys, v)


class ConcatAttention(Attention):
    """`e_tj = v^T tanh(W [q_t; h_j])` (Luong et al. 2015, section 3.1). `size` is the width of v.

    W [size, query_size + key_size] is a single matrix. Its columns for h are applied once per sentence. The function
    equals the additive score with `W = [W U]`; the two papers differ in the wiring.
    """

    def __init__(
        self, *, query_size: int, key_size: int, temperature: Positive, normalizer: Normalizer, size: Count
    ) -> None:
        super().__init__(
            query_size=query_size, key_size=key_size, temperature=temperature, normalizer=normalizer
        )
        self.projection = kernels.Linear(query_size + key_size, size, bias=False)  # W
        self.v = nn.Parameter(torch.empty(size).uniform_(-1, 1) / math.sqrt(size))

    def project_keys(self, states: Tensor) -> Tensor:
        return kernels.affine(states, self.projection.weight[:, self.query_size :])

    def score(self, query: Tensor, keys: Any) -> Tensor:
        projected = kernels.fast_linear(query, self.projection.weight[:, : self.query_size])
        return best_additive_score(projected, keys, self.v)


class CoverageAttention(AdditiveAttention):
    """Additive scores that depend on the attention that a source position has received (Tu et al. 2016, section 3.1).

        e_tj = v^T tanh(W q_t + U h_j + z C_{t-1,j})       C_tj = C_{t-1,j} + a_tj / Phi_j       C_0 = 0

    The fertility `Phi_j = N sigmoid(u_f^T h_j)` is the number of target pieces that position j is worth, with N =
    `max_fertility` (eq. 9, N = 2 in the paper). If `max_fertility` is None, Phi_j is 1 and C is the plain sum of
    weights. C is part of the decoder's state.
    """

    must_step = True
    is_content_score = False

    def __init__(
        self,
        *,
        query_size: int,
        key_size: int,
        temperature: Positive,
        normalizer: Normalizer,
        size: Count,
        max_fertility: Positive | None,
    ) -> None:
        super().__init__(
            query_size=query_size,
            key_size=key_size,
            temperature=temperature,
            normalizer=normalizer,
            size=size,
        )
        self.max_fertility = max_fertility
        self.coverage_projection = nn.Parameter(torch.empty(size).uniform_(-1, 1) / math.sqrt(size))  # z
        if max_fertility is not None:
            self.fertility_projection = nn.Linear(key_size, 1, bias=False)  # u_f

    def project_keys(self, states: Tensor) -> tuple[Tensor, Tensor | None]:
        """Keys [B, S, A] and 1 / Phi [B, S] (None if Phi is 1)."""
        keys = self.key_projection(states)
        if self.max_fertility is None:
            return keys, None
        fertility = self.max_fertility * torch.sigmoid(self.fertility_projection(states).squeeze(-1))
        return keys, 1 / fertility

    def init_past(self, mask: Tensor) -> Tensor:
        return torch.zeros(mask.shape, dtype=self.v.dtype, device=mask.device)

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
        assert past is not None, "coverage must be stepped, from init_past"
        projected, inverse_fertility = keys
        hidden = self.query_projection(query).unsqueeze(2) + projected.unsqueeze(1)  # [B, T, S, A]
        scores = torch.tanh(hidden + past.unsqueeze(-1) * self.coverage_projection) @ self.v
        weights = self.weigh(scores, mask.unsqueeze(1), positions)  # [B, T, S]
        used = weights if inverse_fertility is None else weights * inverse_fertility.unsqueeze(1)
        return Attended(self.average(weights, values), weights, None, past + used)


def best_additive_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """Compute `additive_score` in chunks if the whole [B, T, S, A] would be large, else by the plain form."""
    whole = query.size(1) == 1 or query.size(1) * keys.numel() <= WHOLE
    return additive_score(query, keys, v) if whole else chunked_additive_score(query, keys, v)


def additive_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """`v^T tanh(q_t + k_j)` for projected queries [B, T, A] and keys [B, S, A]. Returns [B, T, S].

    The plain form: holds a [B, T, S, A] tensor and keeps it for the gradient.
    """
    return (query.unsqueeze(2) + keys.unsqueeze(1)).tanh_() @ v


def chunked_additive_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """Compute `additive_score` for a few target positions at a time, so that memory does not grow as T * S * A.

    The gradient computes the hidden layer of a chunk again.
    """
    return _ChunkedAdditiveScore.apply(query, keys, v)


def _chunks(query: Tensor, keys: Tensor) -> list[slice]:
    """Slices of target positions. The hidden layer [B, C, S, A] of a slice has at most `CHUNK` elements, or C is 1."""
    size = max(1, CHUNK // max(1, keys.numel()))
    return [slice(start, start + size) for start in range(0, query.size(1), size)]


class _ChunkedAdditiveScore(torch.autograd.Function):
    """With `h = tanh(q_t + k_j)`: `de/dv = h` and `de/dq_t = de/dk_j = v (1 - h^2)`, summed over j and t."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(query, keys, v)
        parts = [
            (query[:, chunk].unsqueeze(2) + keys.unsqueeze(1)).tanh_() @ v for chunk in _chunks(query, keys)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, keys, v = ctx.saved_tensors
        # Under autocast some inputs are in half precision, which is too coarse for a sum over many chunks.
        wide = torch.promote_types(v.dtype, torch.float32)
        grad_query = torch.empty_like(query)
        grad_keys, grad_v = (torch.zeros_like(each, dtype=wide) for each in (keys, v))
        for chunk in _chunks(query, keys):
            hidden = (query[:, chunk].unsqueeze(2) + keys.unsqueeze(1)).tanh_()  # [B, C, S, A]
            grad_score = grad[:, chunk].to(hidden.dtype).contiguous()  # [B, C, S]
            grad_v += grad_score.flatten() @ hidden.flatten(0, 2)
            slope = hidden.square_().neg_().add_(1).mul_(v)
            slope.mul_(grad_score.unsqueeze(-1))
            grad_query[:, chunk] = slope.sum(dim=2)
            grad_keys += slope.sum(dim=1, dtype=wide)
        return grad_query, grad_keys.to(keys.dtype), grad_v.to(v.dtype)
