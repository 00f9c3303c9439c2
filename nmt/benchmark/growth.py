"""Synthetic batches of any length and vocabulary, and exponents of growing cost (slopes on logarithmic axes)."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.data.batching import Batch

SPECIAL_IDS = {"pad_id": 0, "bos_id": 2, "eos_id": 3}


def made_up_batch(ids: Tensor) -> Batch:
    """The batch of random pieces `ids` [B, 2, L], source and target, whose last piece is set to end of sentence."""
    ids[..., -1] = SPECIAL_IDS["eos_id"]
    src, tgt = ids.unbind(dim=1)
    bos = torch.full_like(tgt[:, :1], SPECIAL_IDS["bos_id"])
    indices = torch.arange(len(ids), device=ids.device)
    return Batch(indices, src, torch.cat((bos, tgt[:, :-1]), dim=1), tgt, guide=None)


def made_up_batches(
    num_batches: int, *, length: int, max_tokens: int, vocab_size: int, seed: int, device: torch.device
) -> list[Batch]:
    """Batches of `max_tokens // length` pairs, at least one, without padding.

    Both sides of a pair have `length` random pieces, end of sentence included.
    """
    shape = (num_batches, max(1, max_tokens // length), 2, length)
    first = max(SPECIAL_IDS.values()) + 1
    ids = torch.randint(first, vocab_size, shape, generator=torch.Generator().manual_seed(seed))
    return [made_up_batch(each) for each in ids.to(device)]


def exponents(points: Sequence[tuple[float, float]]) -> list[float]:
    """The exponents p of y ~ x^p between neighbouring points (x, y): the slopes on log-log axes."""
    return [math.log(y2 / y1) / math.log(x2 / x1) for (x1, y1), (x2, y2) in itertools.pairwise(points)]
