"""The base class of attention mechanisms: scores, weights and the context."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmt import kernels
from nmt.attention.override import Override
from nmt.config.types import Positive

Normalizer = Callable[[Tensor, Tensor], Tensor]  # scores [..., S], mask: weights [..., S]


class Attended(NamedTuple):
    """context [B, T, M] = sum_j weights_tj values_j, and the weights [B, T, S] over real positions.

    heads [B, K, T, S]: the weights of each head if there are several (`weights` is their mean), else None. past
    [B, T, ...]: input of the next step (see `Attention.init_past`); None for most mechanisms.
    """

    context: Tensor
    weights: Tensor
    heads: Tensor | None
    past: Tensor | None


class Attention(nn.Module, ABC):
    """An attention mechanism. Nothing is remembered on `self` between calls: project the keys once, then pass them.

    `normalizer(scores, mask)` turns scores divided by `temperature` into weights: softmax, or a sparse function of
    `nmt.attention.masks`. A decoder may set `dropout`, which in training drops weights out of the context. The
    weights that `forward` returns are those before dropout.
    """

    must_step = False  # True if scores depend on the weights of earlier steps
    # True if `score` depends only on query and key, so that local and multi-head attention can wrap it
    is_content_score = True
    override: Override | None = None  # set on an instance by `nmt.attention.override_attention`
    needs_documents = False  # True if it reads the sentences of a document (encoder=hierarchical)

    def __init__(
        self, *, query_size: int, key_size: int, temperature: Positive, normalizer: Normalizer
    ) -> None:
        super().__init__()
        self.query_size, self.key_size = query_size, key_size
        self.temperature, self.normalizer = temperature, normalizer
        self.dropout: nn.Module = nn.Identity()

    def project_keys(self, states: Tensor) -> Any:
        """Project encoder states [B, S, key_size] to keys [B, S, K]. Called once per sentence.

        A mechanism may return another plain container of tensors with B first.
        """
        return states

    def project(self, encoded: Any) -> Any:
        """Keys for the output `encoded` of an encoder (`nmt.encoders.Encoded`)."""
        return self.project_keys(encoded.states)

    def init_past(self, mask: Tensor) -> Tensor | None:
        """The `past` before the first step [B, ...] of a mechanism that remembers earlier steps; None for others."""
        return None

    @property
    def gives_zeros(self) -> bool:
        """True if a real position with a low score gets a weight of exactly zero, without a gradient."""
        weights = self.normalizer(torch.tensor([0.0, 9.0]), torch.ones(2, dtype=torch.bool))
        return bool((weights == 0).any())

    @abstractmethod
    def score(self, query: Tensor, keys: Any) -> Tensor:
        """Scores e_tj [B, T, S] of queries [B, T, query_size] against projected keys."""

    def weigh(
        self, scores: Tensor, mask: Tensor, positions: Tensor | None = None, factor: Tensor | None = None
    ) -> Tensor:
        """Weights over the last dimension of scores [..., T, S] under mask; the only place where scores are masked.

        They are multiplied by `factor` [..., T, S]. `override` may replace those of target positions [..., T].
        """
        weights = self.normalizer(scores if self.temperature == 1.0 else scores / self.temperature, mask)
        return self.apply_override(
            weights if factor is None else weights * factor.to(weights.dtype), positions
        )

    def apply_override(self, weights: Tensor, positions: Tensor | None) -> Tensor:
        """`weights` [..., T, S], replaced by `override` if it is set and positions [..., T] are known."""
        return weights if self.override is None or positions is None else self.override(weights, positions)

    def average(self, weights: Tensor, values: Tensor) -> Tensor:
        """`sum_j weights_tj values_j`, for weights [..., T, S] and values [..., S, M]: the one reader of weights."""
        return kernels.product(self.dropout(weights), values)

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
        """Attend with query [B, T, query_size] to values [B, S, M] under mask [B, S] (True is real).

        positions [B, T]: the target position t of each query, from 0. past [B, T, ...]: the `past` that the step
        before each query returned.
        """
        weights = self.weigh(self.score(query, keys), mask.unsqueeze(1), positions)  # [B, T, S]
        return Attended(self.average(weights, values), weights, None, past)


def content_score(
    content: Callable[..., Attention], *, query_size: int, key_size: int, user: str
) -> Attention:
    """Build the content score that `user` wraps. Raises ValueError if the mechanism is not a content score."""
    built = content(query_size=query_size, key_size=key_size)
    if not built.is_content_score:
        raise ValueError(
            f"{user} builds on a content score (dot, general, additive, …), not {type(built).__name__}"
        )
    return built


def no_attention(*, query_size: int, key_size: int) -> None:
    """Baseline without attention: the decoder knows the source only through its first state (Sutskever et al. 2014)."""
