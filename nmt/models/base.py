"""The base class of translators, as training, decoding and alignment use it."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor, nn

from nmt.decoders.base import Read


class Forward(NamedTuple):
    """Teacher-forced output: logits [B, T, V]; weights [B, T, S] where asked for and where the model has any.

    Where there are several heads or layers, `weights` is their mean; `Translator.attentions` has each one's.
    """

    logits: Tensor
    weights: Tensor | None


class Attentions(NamedTuple):
    """Every attention of a model under teacher forcing, by layer (of L) and head (of K), bottom layer first.

    cross [B, L, K, T, S], encoder_self [B, L, K, S, S], decoder_self [B, L, K, T, T]; None where the model has
    none of that kind. Rows sum to one over real positions; rows of padded positions mean nothing.
    """

    cross: Tensor | None
    encoder_self: Tensor | None
    decoder_self: Tensor | None


class Step(NamedTuple):
    """One decoding step of N hypotheses: logits [N, V], the state after it, weights [N, S] or None."""

    logits: Tensor
    state: Any
    weights: Tensor | None


def select(tree: Any, index: Tensor) -> Any:
    """Rows `index` of every tensor in a plain container (tuple, named tuple, list, dict, None), in that order.

    The first dimension of each tensor is the sentence or the hypothesis: one function reorders the state of
    any model, and drops finished sentences from any memory.
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

    Source ids end with `eos_id`; target input begins with `bos_id`. Nothing is remembered on `self` between
    calls: what the decoder remembers is its state, a value that goes in and comes out.
    """

    pad_id: int
    bos_id: int
    eos_id: int
    output: nn.Linear  # the output layer, W_y [V, R]; an ensemble has none of its own
    # The layer whose cross-attention is read as the alignment; None: the mean over all.
    alignment_layer: int | None = None

    @property
    @abstractmethod
    def has_attention(self) -> bool:
        """Whether the decoder has an attention."""

    @property
    def max_length(self) -> int | None:
        """The most positions of a source, or of what the decoder reads, BOS included; None is any number."""
        return None

    @property
    def reads_documents(self) -> bool:
        """Whether the encoder knows the sentences of a source."""
        return False

    @property
    def name(self) -> str:
        """What kind of translator it is, for a person."""
        return type(self).__name__

    @property
    def num_parameters(self) -> int:
        """How many numbers it learns; tied weights count once."""
        return sum(each.numel() for each in self.parameters())

    @abstractmethod
    def encode(self, src: Tensor, src_mask: Tensor) -> Any:
        """Encode `src` [B, S] under `src_mask` [B, S] (True is real). Returns a plain container, B first."""

    def read(self, memory: Any, tgt_in: Tensor, *, need_weights: bool = False) -> Read:
        """All of `forward` but the output layer, so that training need not hold all logits at once."""
        raise NotImplementedError(f"{type(self).__name__} has no one output layer")

    def forward(self, memory: Any, tgt_in: Tensor, *, need_weights: bool = False) -> Forward:
        """Logits of every next piece under teacher forcing; `tgt_in` [B, T] begins with `bos_id`."""
        features, weights = self.read(memory, tgt_in, need_weights=need_weights)
        return Forward(self.output(features), weights)

    def attentions(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Attentions:
        """Each layer's and head's weights under teacher forcing: here those of one attention with one head."""
        weights = self.forward(self.encode(src, src_mask), tgt_in, need_weights=True).weights
        return Attentions(None if weights is None else weights[:, None, None], None, None)

    @abstractmethod
    def init_state(self, memory: Any) -> Any:
        """The decoder's state before the first step, one hypothesis a sentence: tensors with B first."""

    @abstractmethod
    def step(self, tgt_prev: Tensor, state: Any, memory: Any, *, need_weights: bool = False) -> Step:
        """Advance N = B * K hypotheses by one piece: `tgt_prev` [N], the K hypotheses of a sentence adjacent.

        `state` has N first, `memory` B first: source states are shared by the hypotheses of a sentence, not
        copied. Returns logits [N, V] of the piece after `tgt_prev`.
        """
