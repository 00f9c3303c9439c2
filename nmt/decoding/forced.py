"""Forced decoding: log-probabilities and attention of given translations."""

import torch
from torch import Tensor

from nmt.attention.masks import padding_mask
from nmt.decoding.constraints import log_softmax
from nmt.decoding.hypotheses import Hypothesis
from nmt.models.base import Translator


@torch.no_grad()
def force_decode(
    model: Translator, src: Tensor, tgt_in: Tensor, tgt_out: Tensor, *, need_weights: bool = False
) -> list[Hypothesis]:
    """Log-probabilities and attention of given targets, one hypothesis for each sentence.

    `src` [B, S]; `tgt_in` [B, T] begins with BOS; `tgt_out` [B, T] has the piece after each piece of `tgt_in`, up to
    EOS. Padded positions of `tgt_out` do not count. The score is the log-probability.
    """
    assert not model.training, "decoding needs model.eval()"
    src_mask = padding_mask(src, model.pad_id)
    logits, weights = model.forward(model.encode(src, src_mask), tgt_in, need_weights=need_weights)
    tgt_mask = padding_mask(tgt_out, model.pad_id)
    chosen = log_softmax(logits).gather(2, tgt_out.unsqueeze(2)).squeeze(2)  # [B, T]
    log_probs = chosen.masked_fill(~tgt_mask, 0.0).sum(dim=1).tolist()
    weights = None if weights is None else weights.cpu()
    hypotheses = []
    lengths = zip(tgt_mask.sum(dim=1).tolist(), src_mask.sum(dim=1).tolist(), strict=True)
    for i, (tgt_length, src_length) in enumerate(lengths):
        pieces = tgt_out[i, :tgt_length].tolist()
        finished = bool(pieces) and pieces[-1] == model.eos_id
        ids = pieces[:-1] if finished else pieces
        own_weights = None if weights is None else weights[i, :tgt_length, :src_length].clone()
        hypotheses.append(Hypothesis(ids, log_probs[i], log_probs[i], finished, own_weights))
    return hypotheses
