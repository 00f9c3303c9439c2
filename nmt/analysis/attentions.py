"""Attention by layer and head over a text, from runs and from Hugging Face transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.analysis.teacher_forcing import ForcedPair
from nmt.errors import UserError
from nmt.run.run import Run

KINDS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class LayerAttentions:
    """Weights [L, K, T, S] of L layers of K heads: each of T target tokens attends to S source tokens.

    kind: encoder or decoder (of a text to itself), or cross. Raises ValueError for another kind, and if tokens do not
    fit the weights.
    """

    kind: str
    weights: NDArray[np.floating]
    source: tuple[str, ...]
    target: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a kind is one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.weights.ndim != 4 or self.weights.shape[2:] != (len(self.target), len(self.source)):
            raise ValueError(
                f"weights are {self.weights.shape}, [layers, heads, T, S], but there are {len(self.target)} target and "
                f"{len(self.source)} source tokens"
            )


def from_transformers(
    outputs: Any,
    tokens: Sequence[Sequence[str]],
    *,
    mask: Any = None,
    target_tokens: Sequence[Sequence[str]] | None = None,
    target_mask: Any = None,
) -> list[dict[str, LayerAttentions]]:
    """Attentions from the outputs of a Hugging Face model, by kind; a dict for each text of the batch.

    tokens: the tokens of each text, padding included, from `tokenizer.convert_ids_to_tokens`.
    mask: the `attention_mask` [B, S], with padding on either side; None without padding.
    target_tokens, target_mask: those of `decoder_input_ids`, for a model with encoder and decoder.

    An encoder alone and a decoder alone have a single kind: decoder if no position attends to a later position.
    Raises UserError if the outputs hold no attention.
    """
    own = _real_tokens(tokens, mask)
    if getattr(outputs, "cross_attentions", None) and target_tokens is not None:
        of_decoder = _real_tokens(target_tokens, target_mask)
        given = {
            "encoder": (outputs.encoder_attentions, own, own),
            "decoder": (outputs.decoder_attentions, of_decoder, of_decoder),
            "cross": (outputs.cross_attentions, own, of_decoder),
        }
    elif getattr(outputs, "attentions", None):
        causal = not any(
            layer[row][:, list(real)][..., list(real)].float().triu(1).any()
            for layer in outputs.attentions
            for row, real in enumerate(own)
        )
        given = {"decoder" if causal else "encoder": (outputs.attentions, own, own)}
    else:
        raise UserError(
            'the outputs hold no attention: load the model with attn_implementation="eager", call it with '
            "output_attentions=True, and give target_tokens where it has an encoder and a decoder"
        )
    return [
        {
            kind: _of_text(kind, [layer[row] for layer in layers], source[row], target[row])
            for kind, (layers, source, target) in given.items()
        }
        for row in range(len(tokens))
    ]


def _real_tokens(tokens: Sequence[Sequence[str]], mask: Any) -> list[dict[int, str]]:
    """The tokens of each text without padding, by position."""
    masks = [[True] * len(each) for each in tokens] if mask is None else np.asarray(mask, dtype=bool)
    return [
        {place: token for place, token in enumerate(each) if real[place]}
        for each, real in zip(tokens, masks, strict=True)
    ]


def _of_text(kind: str, layers: list[Any], source: dict[int, str], target: dict[int, str]) -> LayerAttentions:
    weights = torch.stack(layers).detach().float().cpu().numpy()  # [L, K, T, S], padding included
    real = weights[:, :, list(target)][..., list(source)]
    return LayerAttentions(kind, real, tuple(source.values()), tuple(target.values()))


@torch.inference_mode()
def from_run(run: Run, source: str, target: str) -> dict[str, LayerAttentions]:
    """Attentions of a run between the pieces of a source and a forced target, ends of sentence included.

    Row t of decoder and cross belongs to the piece that step t reads, from the beginning of the sentence on. A kind
    that the model lacks is left out.
    """
    pair = ForcedPair.of(run, source, target)
    src = pair.src[None]
    found = run.translator.attentions(src, torch.ones_like(src, dtype=torch.bool), pair.tgt_in[None])
    read = run.tokenizer.source_pieces(pair.src.tolist())
    written = run.tokenizer.target_pieces(pair.tgt_in.tolist())
    given = {
        "encoder": (found.encoder_self, read, read),
        "decoder": (found.decoder_self, written, written),
        "cross": (found.cross, read, written),
    }
    return {
        kind: LayerAttentions(
            kind, weights[0].float().cpu().numpy(), tuple(source_pieces), tuple(target_pieces)
        )
        for kind, (weights, source_pieces, target_pieces) in given.items()
        if weights is not None
    }


def to_bertviz(attentions: dict[str, LayerAttentions]) -> dict[str, Any]:
    """Keyword arguments for the views of BertViz: `bertviz.model_view(**to_bertviz(each))`."""
    layers = {
        kind: tuple(torch.from_numpy(layer).unsqueeze(0) for layer in each.weights)
        for kind, each in attentions.items()
    }
    if len(attentions) == 1 and "cross" not in attentions:
        [(kind, only)] = attentions.items()
        return {"attention": layers[kind], "tokens": list(only.source)}
    arguments: dict[str, Any] = {f"{kind}_attention": each for kind, each in layers.items()}
    for kind, each in attentions.items():
        if kind != "decoder":
            arguments["encoder_tokens"] = list(each.source)
        if kind != "encoder":
            arguments["decoder_tokens"] = list(each.target)
    return arguments
