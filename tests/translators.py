"""Small translators for tests, each built from one flat list of options."""

from functools import partial
from typing import Any

from nmt.attention import no_attention
from nmt.decoders import RecurrentDecoder, TransformerDecoder
from nmt.encoders import RecurrentEncoder, TransformerEncoder
from nmt.models import EncoderDecoder

OF_BOTH = ("tie_output", "tie_source", "word_dropout", "dropout", "joint_vocabulary")
OF_VOCABULARY = ("src_vocab_size", "tgt_vocab_size", "pad_id", "bos_id", "eos_id")


def recurrent_translator(
    *,
    embedding_size: int,
    hidden_size: int,
    encoder_size: int,
    num_encoder_layers: int,
    num_layers: int,
    output_size: int | None,
    residual: bool = False,
    cell: type,
    attention: Any,
    **options: Any,
) -> EncoderDecoder:
    """A recurrent encoder and decoder. `residual` is of those that are stacks."""
    whole = {name: options.pop(name) for name in (*OF_BOTH, *OF_VOCABULARY)}
    encoder = partial(
        RecurrentEncoder,
        size=encoder_size,
        num_layers=num_encoder_layers,
        output_size=output_size,
        residual=residual and num_encoder_layers > 1,
        cell=cell,
    )
    decoder = partial(
        RecurrentDecoder,
        size=hidden_size,
        num_layers=num_layers,
        residual=residual and num_layers > 1,
        attention=no_attention if attention is None else attention,
        cell=cell,
        **options,
    )
    return EncoderDecoder(size=embedding_size, encoder=encoder, decoder=decoder, **whole)


def transformer_translator(
    *,
    size: int,
    num_encoder_layers: int,
    num_decoder_layers: int,
    alignment_layer: int | None,
    **options: Any,
) -> EncoderDecoder:
    """A Transformer: the other options are of both stacks."""
    whole = {name: options.pop(name) for name in (*OF_BOTH, *OF_VOCABULARY)}
    encoder = partial(TransformerEncoder, num_layers=num_encoder_layers, **options)
    decoder = partial(
        TransformerDecoder, num_layers=num_decoder_layers, alignment_layer=alignment_layer, **options
    )
    return EncoderDecoder(size=size, encoder=encoder, decoder=decoder, **whole)
