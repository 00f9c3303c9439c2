"""Ensembles of translators."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nmt.models.base import Forward, Step, Translator


class EnsembleTranslator(Translator):
    """The mean of the probabilities of M members: `log p(y_t) = log (1/M sum_m p_m(y_t))`.

    Logits are these log-probabilities. Memory and state are tuples, with an entry per member; weights are the mean
    over the members with attention. Members share their vocabularies and may differ in all else. Raises ValueError if
    their special ids differ.
    """

    def __init__(self, members: Sequence[Translator]) -> None:
        super().__init__()
        ids = {(each.pad_id, each.bos_id, each.eos_id) for each in members}
        if len(ids) != 1:
            raise ValueError(f"the members of an ensemble need the same PAD, BOS and EOS, got {sorted(ids)}")
        self.members: Any = nn.ModuleList(members)
        [(self.pad_id, self.bos_id, self.eos_id)] = ids

    @property
    def has_attention(self) -> bool:
        return any(member.has_attention for member in self.members)

    @property
    def reads_documents(self) -> bool:
        return any(member.reads_documents for member in self.members)

    @property
    def max_length(self) -> int | None:
        return min((each.max_length for each in self.members if each.max_length is not None), default=None)

    def encode(self, src: Tensor, src_mask: Tensor) -> tuple[Any, ...]:
        return tuple(member.encode(src, src_mask) for member in self.members)

    def init_state(self, memory: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(member.init_state(part) for member, part in zip(self.members, memory, strict=True))

    def forward(self, memory: tuple[Any, ...], tgt_in: Tensor, *, need_weights: bool = False) -> Forward:
        outputs = [
            member.forward(part, tgt_in, need_weights=need_weights)
            for member, part in zip(self.members, memory, strict=True)
        ]
        return Forward(
            _log_mean([each.logits for each in outputs]), _mean([each.weights for each in outputs])
        )

    def step(
        self, tgt_prev: Tensor, state: tuple[Any, ...], memory: tuple[Any, ...], *, need_weights: bool = False
    ) -> Step:
        steps = [
            member.step(tgt_prev, own_state, own_memory, need_weights=need_weights)
            for member, own_state, own_memory in zip(self.members, state, memory, strict=True)
        ]
        return Step(
            _log_mean([each.logits for each in steps]),
            tuple(each.state for each in steps),
            _mean([each.weights for each in steps]),
        )


def _log_mean(logits: list[Tensor]) -> Tensor:
    """`log (1/M sum_m softmax(logits_m))` [..., V], in float32 or better: half precision loses small probabilities."""
    log_probs = [
        each.log_softmax(dim=-1, dtype=torch.promote_types(each.dtype, torch.float32)) for each in logits
    ]
    return torch.stack(log_probs).logsumexp(dim=0) - math.log(len(logits))


def _mean(weights: list[Tensor | None]) -> Tensor | None:
    """The mean of the weights [..., S] that are not None; None if all are."""
    present = [each for each in weights if each is not None]
    return torch.stack(present).mean(dim=0) if present else None
