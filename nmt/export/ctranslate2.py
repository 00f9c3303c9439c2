"""Export to CTranslate2, a C++ inference engine for Transformers: https://opennmt.net/CTranslate2/"""

from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from torch import Tensor, nn

from nmt.decoders import TransformerDecoder
from nmt.encoders import TransformerEncoder
from nmt.export.layouts import layers, parts_of, table
from nmt.layers.positions import RotaryPositions
from nmt.layers.sublayers import DecoderLayer
from nmt.run.run import Run

LIBRARY = "ctranslate2"


def write(run: Run, directory: Path, quantization: str | None = None) -> str:
    """Write model.bin, its vocabularies and the SentencePiece models; return usage instructions.

    quantization: CTranslate2's name of the storage type of the weights: int8, int16, float16, …
    """
    model, encoder, decoder, pre_norm, _ = parts_of(run, "ctranslate2")
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(
            len(encoder.layers), _heads(encoder), pre_norm=pre_norm, **_rotary(encoder)
        ),
        transformer_spec.TransformerDecoderSpec(
            len(decoder.layers),
            _heads(decoder),
            pre_norm=pre_norm,
            alignment_layer=-1 if decoder.alignment_layer is None else decoder.alignment_layer,
            **_rotary(decoder),
        ),
    )
    _set_stack(spec.encoder, encoder, pre_norm=pre_norm)
    _set_stack(spec.decoder, decoder, pre_norm=pre_norm)
    spec.encoder.embeddings[0].weight = _array(encoder.embedding.weight)
    spec.decoder.embeddings.weight = _array(decoder.embedding.weight)
    _set_linear(spec.decoder.projection, model.output)
    tokenizer = run.tokenizer
    source = tokenizer.source_pieces(range(tokenizer.src_vocab_size))
    target = tokenizer.target_pieces(range(tokenizer.tgt_vocab_size))
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    config = spec.config
    config.bos_token, config.eos_token = target[tokenizer.bos_id], target[tokenizer.eos_id]
    config.unk_token, config.decoder_start_token = target[tokenizer.unk_id], target[tokenizer.bos_id]
    config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(directory))
    tokenizer.save(directory)
    names = ("joint.model",) * 2 if tokenizer.joint else ("src.model", "tgt.model")
    lower = ".lower()" if tokenizer.lowercase else ""
    never = [target[tokenizer.pad_id], target[tokenizer.bos_id]]
    limit = min(256, len(table(decoder)))
    return f"""`pip install ctranslate2 sentencepiece`, then, beside this file:

```python
import ctranslate2
import sentencepiece

translator = ctranslate2.Translator(".", device="cpu")  # compute_type="int8" is faster and a little less exact
source = sentencepiece.SentencePieceProcessor(model_file="{names[0]}")
target = sentencepiece.SentencePieceProcessor(model_file="{names[1]}")
pieces = source.encode("TEXT"{lower}, out_type=str)
never = {[[each] for each in never]}
result = translator.translate_batch([pieces], beam_size=5, suppress_sequences=never, max_decoding_length={limit})
print(target.decode(result[0].hypotheses[0]))
```

A text has at most {len(table(encoder)):,} pieces. CTranslate2 ranks the hypotheses of a beam by log p / |y|^alpha, the
program that trained this model by log p / ((5 + |y|) / 6)^alpha: with a beam above 1 a few translations differ.
CTranslate2 stops a translation after {limit} pieces (`max_decoding_length`); the training program's limit depends on
the source's length."""


def _set_stack(spec: Any, side: TransformerEncoder | TransformerDecoder, *, pre_norm: bool) -> None:
    spec.scale_embeddings = True
    if hasattr(spec, "position_encodings"):  # a decoder with rotary positions has none
        spec.position_encodings.encodings = _array(table(side))
    if pre_norm:
        _set_norm(spec.layer_norm, side.norm)
    for of_layer, layer in zip(spec.layer, layers(side), strict=True):
        own = of_layer.self_attention
        _set_linear(own.linear[0], layer.self_attention.projection)
        _set_linear(own.linear[1], layer.self_attention.output)
        _set_norm(own.layer_norm, layer.around_self.norm)
        if isinstance(layer, DecoderLayer):
            cross = of_layer.attention
            _set_linear(cross.linear[0], layer.cross_attention.query_projection)
            _set_linear(cross.linear[1], layer.cross_attention.states_projection)
            _set_linear(cross.linear[2], layer.cross_attention.output)
            _set_norm(cross.layer_norm, layer.around_cross.norm)
        _set_linear(of_layer.ffn.linear_0, layer.feedforward.inner)
        _set_linear(of_layer.ffn.linear_1, layer.feedforward.outer)
        _set_norm(of_layer.ffn.layer_norm, layer.around_feedforward.norm)


def _set_linear(spec: common_spec.LinearSpec, layer: nn.Linear) -> None:
    spec.weight, spec.bias = _array(layer.weight), _array(layer.bias)


def _set_norm(spec: common_spec.LayerNormSpec, norm: nn.Module) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Any) -> np.ndarray:
    assert isinstance(tensor, Tensor)
    return tensor.detach().float().numpy()


def _heads(side: TransformerEncoder | TransformerDecoder) -> int:
    return layers(side)[0].self_attention.num_heads


def _rotary(side: TransformerEncoder | TransformerDecoder) -> dict[str, Any]:
    """Settings of rotary positions: the numbers of a head that turn, of which i goes with i + d/2."""
    if not isinstance(side.positions, RotaryPositions):
        return {}
    return {"rotary_dim": side.positions.size // _heads(side) // 2 * 2, "rotary_interleave": False}
