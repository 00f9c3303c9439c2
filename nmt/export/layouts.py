"""The parts of a Transformer that the exporters read, with checks of the model."""

from typing import NamedTuple

import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]
from torch import Tensor, nn

from nmt.decoders import TransformerDecoder
from nmt.encoders import TransformerEncoder
from nmt.errors import UserError
from nmt.layers.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from nmt.layers.sublayers import DecoderLayer, EncoderLayer
from nmt.models import EncoderDecoder
from nmt.run.run import Run
from nmt.run.translating import MOST_PIECES


class Parts(NamedTuple):
    """A Transformer whose encoder and decoder have the same norm order (pre or post) and kind of positions."""

    model: EncoderDecoder
    encoder: TransformerEncoder
    decoder: TransformerDecoder
    pre_norm: bool
    positions: type[nn.Module]


def check_words(run: Run, format: str) -> None:
    """Raise UserError for a vocabulary of words, which the format would leave to SentencePiece alone."""
    spec = [ModelProto.FromString(model).trainer_spec for model in run.tokenizer.models]
    if any(each.model_type == each.WORD for each in spec):
        raise UserError(
            f"format={format} leaves the words of {run.directory} (model_type=word) to SentencePiece, which joins "
            "neighbouring unknown words: use format=safetensors"
        )


def parts_of(run: Run, format: str) -> Parts:
    """The parts of a run's Transformer. Raises UserError for any other model, suggesting another format."""
    check_words(run, format)
    model = run.translator
    encoder, decoder = getattr(model, "encoder", None), getattr(model, "decoder", None)
    if not (
        isinstance(model, EncoderDecoder)
        and isinstance(encoder, TransformerEncoder)
        and isinstance(decoder, TransformerDecoder)
        and model.lexical is None
    ):
        raise UserError(
            f"format={format} is for Transformers without lexical votes, {run.directory} is {model.name}: use "
            f"format={'safetensors' if model.reads_documents else 'onnx'}"
        )
    sides = [(isinstance(side.norm, nn.LayerNorm), type(side.positions)) for side in (encoder, decoder)]
    known = sides[0][1] in (LearnedPositions, RotaryPositions, SinusoidalPositions)
    if encoder.output_size != decoder.features_size or sides[0] != sides[1] or not known:
        raise UserError(
            f"format={format} needs an encoder and a decoder of one kind, {run.directory} has two: use format=onnx"
        )
    return Parts(model, encoder, decoder, *sides[0])


def table(side: TransformerEncoder | TransformerDecoder, length: int = MOST_PIECES) -> Tensor:
    """The vectors [length, H] that are added at positions 0, 1, …; for learned positions, the whole table."""
    if isinstance(side.positions, LearnedPositions):
        return side.positions.table.detach()
    return side.positions(torch.zeros(1, length, side.embedding.embedding_dim), first=0)[0]


def layers(side: TransformerEncoder | TransformerDecoder) -> list[EncoderLayer | DecoderLayer]:
    return list(side.layers)  # type: ignore[arg-type]
