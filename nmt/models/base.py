"""The base class of translators: the interface that training, decoding and alignment use."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor, nn

from nmt.decoders.base import Read


class Forward(NamedTuple):
    """Teacher-forced output: logits [B, T, V]; weights [B, T, S], None if not needed or without attention.

    `weights` are means over heads, and over layers unless there is an `alignment_layer`; `Translator.attentions`
    gives the weights by layer and head.
    """

    logits: Tensor
    weights: Tensor | None


class Attentions(NamedTuple):
    """All attention weights of a model under teacher forcing, by layer (L, bottom layer first) and head (K).

    cross [B, L, K, T, S], encoder_self [B, L, K, S, S], decoder_self [B, L, K, T, T]; None if the model has no such
    attention. Rows sum to 1 over real positions; rows of padded positions have no meaning.
    """

    cross: Tensor | None
    encoder_self: Tensor | None
    decoder_self: Tensor | None


class Step(NamedTuple):
    """A decoding step of N hypotheses: logits [N, V], the next state, weights [N, S] or None."""

    logits: Tensor
    state: Any
    weights: Tensor | None


def select(tree: Any, index: Tensor) -> Any:
    """Select rows `index`, in that order, of every tensor in a plain container.

    Containers are tuple, named tuple, list, dict and None. The first dimension of every tensor is the sentence or the
    hypothesis. So this function reorders the state of any model, and drops finished sentences from any memory.
    """
    if tree is None:
        return None
    if isinstance(tree, Tensor):
        return tree.index_select(0, index)
    if isinstance(tree, dict):
        return {name: select(part, index) for name, part in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(select(part, index) for part in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(select(part, index) for part in tree)
    raise TypeError(f"a state holds tensors in plain containers, got {type(tree).__name__}")


class Translator(nn.Module, ABC):
    """A sequence-to-sequence model `p(y | x) = prod_t p(y_t | y_<t, x)`.

    Source ids end with `eos_id`; target input begins with `bos_id`. Nothing is remembered on `self` between calls:
    the decoder's state is passed in and returned.
    """

    pad_id: int
    bos_id: int
    eos_id: int
    output: nn.Linear  # the output layer, W_y [V, R]; an ensemble has none
    # The layer that alignments are read from; None for the mean over all layers.
    alignment_layer: int | None = None

    @property
    @abstractmethod
    def has_attention(self) -> bool:
        """True if the decoder has an attention."""

    @property
    def max_length(self) -> int | None:
        """The most positions of a source or of the decoder's input, BOS included; None for no limit."""
        return None

    @property
    def reads_documents(self) -> bool:
        """True if the encoder knows the sentences of a source."""
        return False

    @property
    def name(self) -> str:
        """Name of the architecture, for messages and reports."""
        return type(self).__name__

    @property
    def num_parameters(self) -> int:
        """Number of parameters; tied weights count once."""
        return sum(each.numel() for each in self.parameters())

    @abstractmethod
    def encode(self, src: Tensor, src_mask: Tensor) -> Any:
        """Encode `src` [B, S] under `src_mask` [B, S] (True is real). Returns a plain container with B first."""

    def read(self, memory: Any, tgt_in: Tensor, *, need_weights: bool = False) -> Read:
        """Compute `forward` without the output layer, so that training need not hold all logits at once."""
        raise NotImplementedError(f"{type(self).__name__} has no one output layer")

    def forward(self, memory: Any, tgt_in: Tensor, *, need_weights: bool = False) -> Forward:
        """Logits of every next piece under teacher forcing; `tgt_in` [B, T] begins with `bos_id`."""
        features, weights = self.read(memory, tgt_in, need_weights=need_weights)
        return Forward(self.output(features), weights)

    def attentions(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Attentions:
        """Attention weights by layer and head under teacher forcing. Here: of a single attention with a single head."""
        weights = self.forward(self.encode(src, src_mask), tgt_in, need_weights=True).weights
        return Attentions(None if weights is None else weights[:, None, None], None, None)

    @abstractmethod
    def init_state(self, memory: Any) -> Any:
        """The decoder's state before the first step, a hypothesis per sentence: tensors with B first."""

    @abstractmethod
    def step(self, tgt_prev: Tensor, state: Any, memory: Any, *, need_weights: bool = False) -> Step:
        """Advance N = B * K hypotheses by one piece; `tgt_prev` [N] has the K hypotheses of a sentence side by side.

        `state` has N first, `memory` has B first: the hypotheses of a sentence share the source states without a
        copy. Returns logits [N, V] of the piece after `tgt_prev`.
        """
