"""Measures of the weights of attention heads, and the loss of a model without each head."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nmt import alignment
from nmt.analysis.attentions import LayerAttentions
from nmt.analysis.words import SPECIAL
from nmt.attention import MultiHeadAttention
from nmt.attention.masks import padding_mask
from nmt.comparison.tables import align_columns
from nmt.layers.transformer_attention import TransformerAttention
from nmt.run.run import Run

MEASURES = (
    "entropy",
    "concentration",
    "diagonality",
    "previous",
    "next",
    "first",
    "separators",
    "similarity",
)


def head_measures(texts: Sequence[LayerAttentions]) -> dict[str, NDArray[np.floating]]:
    """Measures [L, K] of heads, as means over the rows of all texts (diagonality: over texts).

        previous = a_{t,t-1}        next = a_{t,t+1}        first = a_{t,0}
        separators = sum of a_tj over special tokens j > 0

    `similarity` is `1 - JSD(a_t, b_t) / log 2` with the most similar other head b: 1 if the rows are the same (Lin
    1991). `most_similar` is the number of that head, `layer * K + head`. previous and next are NaN between two texts,
    and the similarity of a single head is NaN. Raises ValueError without texts.
    """
    if not texts:
        raise ValueError("there is no text to measure heads on")
    rows: dict[str, list[NDArray[np.floating]]] = {name: [] for name in MEASURES}
    for each in texts:
        weights = np.asarray(each.weights, dtype=np.float64)  # [L, K, T, S]
        special = np.array([SPECIAL.fullmatch(token) is not None for token in each.source])
        special[0] = False  # counted by `first`
        rows["entropy"].append(alignment.entropy(weights))
        rows["concentration"].append(alignment.concentration(weights))
        rows["diagonality"].append(np.asarray(alignment.diagonality(weights))[..., None])
        rows["first"].append(weights[..., 0])
        rows["separators"].append(weights[..., special].sum(axis=-1))
        if each.kind != "cross":
            rows["previous"].append(np.diagonal(weights, offset=-1, axis1=2, axis2=3))
            rows["next"].append(np.diagonal(weights, offset=1, axis1=2, axis2=3))
        rows["similarity"].append(_similarity(weights.reshape(-1, *weights.shape[2:])))
    shape = texts[0].weights.shape[:2]
    none = np.full(shape, np.nan)
    measures = {
        name: np.concatenate(rows[name], axis=-1).mean(axis=-1) if rows[name] else none
        for name in MEASURES
        if name != "similarity"
    }
    alike = np.concatenate(rows["similarity"], axis=-1).mean(axis=-1)  # [L * K, L * K]
    np.fill_diagonal(alike, -np.inf)
    alone = len(alike) == 1
    measures["similarity"] = none if alone else alike.max(axis=1).reshape(shape)
    measures["most_similar"] = none if alone else alike.argmax(axis=1).astype(float).reshape(shape)
    return measures


def _similarity(heads: NDArray[np.floating]) -> NDArray[np.floating]:
    """`1 - JSD / log 2` of the rows of each pair of heads [H, T, S]. Returns [H, H, T]."""
    own = alignment.entropy(heads)  # [H, T]
    found = np.ones((len(heads), *own.shape))
    for number, head in enumerate(heads):
        mixed = alignment.entropy((heads + head) / 2)  # [H, T]
        found[number] = 1 - (mixed - (own + own[number]) / 2) / np.log(2)
    return found


def head_table(texts: Sequence[LayerAttentions]) -> str:
    """`head_measures` as a Markdown table with a line per head."""
    measures = head_measures(texts)
    num_layers, num_heads = measures["entropy"].shape
    lines = [["layer", "head", *MEASURES, "to"]]
    for layer in range(num_layers):
        for head in range(num_heads):
            values = [measures[name][layer, head] for name in MEASURES]
            other = measures["most_similar"][layer, head]
            to = "–" if np.isnan(other) else f"{int(other) // num_heads}.{int(other) % num_heads}"
            lines.append(
                [str(layer), str(head), *("–" if np.isnan(each) else f"{each:.2f}" for each in values), to]
            )
    return align_columns(lines)


@torch.inference_mode()
def head_importance(
    run: Run, sources: Sequence[str], targets: Sequence[str]
) -> dict[str, NDArray[np.floating]]:
    """Rise of the loss of given targets without each head, in nats per piece (Michel et al. 2019, section 3).

    To silence a head, its columns of the output map are set to zero. Returns an array [K] for each attention that has
    heads, by its name in the model, such as `decoder.layers.0.cross_attention`; empty without such an attention.
    """
    whole = _loss(run, sources, targets)
    found = {}
    for name, module in run.translator.named_modules():
        if isinstance(module, TransformerAttention | MultiHeadAttention):
            output: Any = (
                module.output if isinstance(module, TransformerAttention) else module.output_projection
            )
            found[name] = np.array(
                [
                    _loss_without(run, sources, targets, output, module.num_heads, head) - whole
                    for head in range(module.num_heads)
                ]
            )
    return found


def _loss_without(
    run: Run, sources: Sequence[str], targets: Sequence[str], output: nn.Linear, num_heads: int, head: int
) -> float:
    kept = output.weight.detach().clone()
    try:
        output.weight.unflatten(1, (num_heads, -1))[:, head] = 0
        return _loss(run, sources, targets)
    finally:
        output.weight.copy_(kept)


def _loss(run: Run, sources: Sequence[str], targets: Sequence[str]) -> float:
    """-log p of the targets' pieces and ends, in nats per piece."""
    tokenizer = run.tokenizer
    src, tgt_out = run.pad(tokenizer.encode_source(sources)), run.pad(tokenizer.encode_target(targets))
    tgt_in = torch.cat((torch.full_like(tgt_out[:, :1], tokenizer.bos_id), tgt_out[:, :-1]), dim=1)
    logits = run.translator(run.translator.encode(src, padding_mask(src, tokenizer.pad_id)), tgt_in).logits
    return nn.functional.cross_entropy(logits.transpose(1, 2), tgt_out, ignore_index=tokenizer.pad_id).item()
