"""Attention weights, and the norms of the vectors that they bring to the output."""

from typing import Any

import torch
from torch import Tensor

from nmt.analysis.teacher_forcing import ForcedPair, Scores
from nmt.attention import MultiHeadAttention
from nmt.attention.masks import padding_mask
from nmt.decoders import RecurrentDecoder, TransformerDecoder
from nmt.errors import UserError


@torch.inference_mode()
def attend(translator: Any, pair: ForcedPair) -> Scores:
    """score_tj = a_tj, the weights that alignments are read from. Raises UserError for a model without attention."""
    ids = pair.src[None]
    memory = translator.encode(ids, padding_mask(ids, translator.pad_id))
    weights = translator(memory, pair.tgt_in[None], need_weights=True).weights
    if weights is None:
        raise UserError("this run has no attention: give another method")
    return Scores(weights[0])


@torch.inference_mode()
def attend_by_value(translator: Any, pair: ForcedPair) -> Scores:
    """score_tj = |sum_k a^k_tj f^k(h_j)|, a norm (Kobayashi et al. 2020, eq. 5).

    f^k is all that lies between the encoder's state h_j and the next sum: in a Transformer the value and output maps
    of head k, with a mean over the layers that alignments are read from; in a recurrent decoder the part of the
    readout's map that reads the context, after the value and output maps of multi-head attention. Raises UserError for
    another decoder, and for attention over the sentences of a document.
    """
    decoder, ids = translator.decoder, pair.src[None]
    memory = decoder.prepare(translator.encoder(ids, padding_mask(ids, translator.pad_id)))
    cross, _ = decoder.attentions(memory, pair.tgt_in[None])  # [1, L, K, T, S]
    if cross is None or decoder.needs_documents:
        raise UserError("value_norm needs attention to the states of words: give another method")
    if isinstance(decoder, TransformerDecoder):
        chosen = decoder.alignment_layer
        layers = range(len(decoder.layers)) if chosen is None else (chosen,)
        norms = [
            _norms(cross[0, each], memory.cross[each].values[0], decoder.cross_attentions[each].output.weight)  # type: ignore[arg-type,union-attr]
            for each in layers
        ]
        return Scores(torch.stack(norms).mean(dim=0))
    if not isinstance(decoder, RecurrentDecoder):
        raise UserError(f"value_norm is not defined for {type(decoder).__name__}: give another method")
    reads = decoder.wiring.readout.weight[:, decoder.wiring.context_columns]  # [R, M]
    attention = decoder.attention
    if isinstance(attention, MultiHeadAttention):
        return Scores(_norms(cross[0, 0], memory.keys[1][0], reads @ attention.output_projection.weight))
    return Scores(_norms(cross[0, 0, :1], memory.states, reads))


def _norms(weights: Tensor, values: Tensor, output: Tensor) -> Tensor:
    """|sum_k a^k_tj W^k v^k_j| [T, S] of weights [K, T, S], values [K, S, d] and W = [W^1 … W^K] [R, K d]."""
    maps = output.unflatten(1, (len(weights), -1))  # [R, K, d]
    brought = torch.einsum("rkd,ksd->ksr", maps, values)  # [K, S, R]
    products = torch.einsum("ksr,lsr->skl", brought, brought)  # [S, K, K]
    return torch.einsum("kts,skl,lts->ts", weights, products, weights).clamp_min(0).sqrt()
