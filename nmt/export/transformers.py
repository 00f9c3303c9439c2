"""Export to Hugging Face transformers, as an equivalent model class of that library, with a tokenizer.

    pre-norm, sinusoidal    Pegasus      pre-norm, learned    Blenderbot      post-norm, sinusoidal    Marian

These classes put the sines in the first half of the position vector and the cosines in the second half; this package
puts them at even and odd dimensions. So the dimensions of the residual stream are permuted; the function is the same.
"""

from pathlib import Path
from typing import Any

import torch
import transformers
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedTokenizerFast

from nmt.data import tokenizer as own
from nmt.errors import UserError
from nmt.export.layouts import Parts, layers, parts_of, table
from nmt.layers.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from nmt.layers.sublayers import DecoderLayer
from nmt.run.run import Run

LIBRARY = "transformers"
CLASSES: dict[tuple[bool, type], str] = {
    (True, SinusoidalPositions): "Pegasus",
    (True, LearnedPositions): "Blenderbot",
    (False, SinusoidalPositions): "Marian",
}


def write(run: Run, directory: Path) -> str:
    """Write model.safetensors, config.json, generation_config.json and tokenizer.json; return usage instructions."""
    parts = parts_of(run, "transformers")
    model, encoder, decoder, pre_norm, positions = parts
    name = CLASSES.get((pre_norm, positions))
    if name is None:
        kind = "rotary" if positions is RotaryPositions else "norms after and learned"
        raise UserError(f"format=transformers has no class with {kind} positions: use format=ctranslate2")
    if not run.tokenizer.joint or encoder.embedding is not decoder.embedding:
        raise UserError(
            "format=transformers needs one embedding of a joint vocabulary: use format=ctranslate2"
        )
    tokenizer = run.tokenizer
    check_tokenizer(tokenizer)
    length = len(table(encoder))
    special = {f"{each}_token_id": getattr(tokenizer, f"{each}_id") for each in ("pad", "bos", "eos")}
    special["decoder_start_token_id"] = tokenizer.bos_id
    config = getattr(transformers, f"{name}Config")(
        vocab_size=tokenizer.tgt_vocab_size,
        d_model=encoder.output_size,
        scale_embedding=True,
        activation_function="relu",
        max_position_embeddings=length,
        forced_eos_token_id=None,
        tie_word_embeddings=model.output.weight is decoder.embedding.weight,
        **_sizes("encoder", encoder),
        **_sizes("decoder", decoder),
        **special,
    )
    theirs = getattr(
        transformers, "MarianMTModel" if name == "Marian" else f"{name}ForConditionalGeneration"
    )(config)
    _load(theirs, _weights(parts))
    theirs.generation_config = GenerationConfig(
        max_length=length,
        num_beams=run.decoding.beam_size,
        suppress_tokens=[tokenizer.pad_id, tokenizer.bos_id],
        **special,
    )
    theirs.save_pretrained(directory)
    fast_tokenizer(tokenizer, model_max_length=length).save_pretrained(directory)
    return usage(name, length)


def _sizes(key: str, side: Any) -> dict[str, int]:
    """The sizes of the encoder or the decoder, by their names in transformers' configurations."""
    first = layers(side)[0]
    return {
        f"{key}_layers": len(side.layers),
        f"{key}_attention_heads": first.self_attention.num_heads,
        f"{key}_ffn_dim": first.feedforward.inner.out_features,
    }


def usage(name: str, length: int) -> str:
    """Instructions for the exported model, of the class `name` with positions up to `length`."""
    return f"""`pip install transformers torch`, then, beside this file:

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForSeq2SeqLM.from_pretrained(".")
found = model.generate(**tokenizer("TEXT", return_tensors="pt"))
print(tokenizer.decode(found[0], skip_special_tokens=True))
```

The class is {name}'s; a text has at most {length:,} pieces. `generate` ranks the hypotheses of a beam by log p / |y|,
the program that trained this model by log p / ((5 + |y|) / 6)^alpha: with a beam above 1 a few translations differ.
`generate` stops a translation after {length:,} pieces, or `max_new_tokens`; the training program's limit depends on the
source's length."""


def _load(theirs: nn.Module, weights: dict[str, Tensor]) -> None:
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    computed = [each for each in missing if "embed_positions" not in each and each != "lm_head.weight"]
    assert not unexpected, unexpected
    assert not computed, computed


def _weights(parts: Parts) -> dict[str, Tensor]:
    """The weights with the names and the residual stream's dimension order of transformers."""
    model, encoder, decoder, pre_norm, positions = parts
    learned = positions is LearnedPositions
    size = encoder.output_size
    order = torch.arange(size) if learned else torch.cat((torch.arange(0, size, 2), torch.arange(1, size, 2)))
    found: dict[str, Tensor] = {}

    def read(names: list[str], layer: nn.Linear) -> None:
        """Add stacked linear maps that read the residual stream."""
        weights, biases = layer.weight[:, order].chunk(len(names)), layer.bias.chunk(len(names))
        for name, weight, bias in zip(names, weights, biases, strict=True):
            found[f"{name}.weight"], found[f"{name}.bias"] = weight, bias

    def write(name: str, layer: nn.Module) -> None:
        """Add a linear map or a norm that writes to the residual stream."""
        found[f"{name}.weight"], found[f"{name}.bias"] = layer.weight[order], layer.bias[order]  # type: ignore[index]

    for key, side in (("encoder", encoder), ("decoder", decoder)):
        for number, layer in enumerate(layers(side)):
            at = f"model.{key}.layers.{number}"
            read([f"{at}.self_attn.{each}_proj" for each in "qkv"], layer.self_attention.projection)
            write(f"{at}.self_attn.out_proj", layer.self_attention.output)
            write(f"{at}.self_attn_layer_norm", layer.around_self.norm)
            if isinstance(layer, DecoderLayer):
                read([f"{at}.encoder_attn.q_proj"], layer.cross_attention.query_projection)
                read(
                    [f"{at}.encoder_attn.{each}_proj" for each in "kv"],
                    layer.cross_attention.states_projection,
                )
                write(f"{at}.encoder_attn.out_proj", layer.cross_attention.output)
                write(f"{at}.encoder_attn_layer_norm", layer.around_cross.norm)
            read([f"{at}.fc1"], layer.feedforward.inner)
            write(f"{at}.fc2", layer.feedforward.outer)
            write(f"{at}.final_layer_norm", layer.around_feedforward.norm)
        if pre_norm:
            write(f"model.{key}.layer_norm", side.norm)
        if learned:
            found[f"model.{key}.embed_positions.weight"] = table(side)
        found[f"model.{key}.embed_tokens.weight"] = side.embedding.weight[:, order]
    found["model.shared.weight"] = found["model.encoder.embed_tokens.weight"]
    found["lm_head.weight"] = model.output.weight[:, order]
    found["final_logits_bias"] = model.output.bias.unsqueeze(0)
    return {name: each.detach().clone().contiguous() for name, each in found.items()}


def check_tokenizer(tokenizer: own.Tokenizer) -> None:
    """Raise UserError for a given SentencePiece model that `fast_tokenizer` cannot reproduce."""
    proto = ModelProto.FromString(tokenizer.models[0])
    spec, trained = proto.normalizer_spec, proto.trainer_spec
    is_bpe = trained.model_type == trained.BPE
    if (
        trained.model_type not in (trained.UNIGRAM, trained.BPE)
        or not (spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces)
        or trained.treat_whitespace_as_suffix
        or (is_bpe and not trained.split_by_whitespace)
        or (is_bpe and any(each.type == each.USER_DEFINED for each in proto.pieces))
    ):
        raise UserError(
            "format=transformers has no tokenizer that cuts text as this SentencePiece model does: "
            "use format=ctranslate2"
        )


def fast_tokenizer(tokenizer: own.Tokenizer, *, model_max_length: int) -> PreTrainedTokenizerFast:
    """The joint vocabulary as a fast tokenizer of transformers: the same ids for the same text, with two exceptions.

    In a unigram model, segmentations with the same pieces in another order have equal probability, and the tie is
    broken by rounding, which may differ from SentencePiece. A final Σ is lower-cased to σ.
    """
    proto = ModelProto.FromString(tokenizer.models[0])
    # With a space, which the pre-tokenizer replaces by ▁ in text, so that "</s>" in a text is plain text
    pieces = [
        (f" {each.piece}" if each.type in (each.CONTROL, each.UNKNOWN) else each.piece, each.score)
        for each in proto.pieces
    ]
    trained = proto.trainer_spec
    if trained.model_type == trained.UNIGRAM:
        fast = Tokenizer(Unigram(pieces, unk_id=tokenizer.unk_id, byte_fallback=trained.byte_fallback))
    else:
        fast = Tokenizer(_bpe(pieces, tokenizer.unk_id, byte_fallback=trained.byte_fallback))
    steps: list[Any] = [normalizers.Lowercase()] if tokenizer.lowercase else []
    if proto.normalizer_spec.precompiled_charsmap:
        # The map has composed letters only
        steps += [normalizers.NFC(), normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)]
    steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    fast.normalizer = normalizers.Sequence(steps)
    fast.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme="always", split=trained.model_type == trained.BPE
    )
    spaces = decoders.Metaspace(prepend_scheme="always")
    fast.decoder = decoders.Sequence([decoders.ByteFallback(), spaces]) if trained.byte_fallback else spaces
    names = {each: pieces[getattr(tokenizer, f"{each}_id")][0] for each in ("pad", "unk", "bos", "eos")}
    fast.post_processor = processors.TemplateProcessing(
        single=["$A", names["eos"]], special_tokens=[(names["eos"], tokenizer.eos_id)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=fast,
        model_max_length=model_max_length,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
        **{f"{key}_token": name for key, name in names.items()},
    )


def _bpe(pieces: list[tuple[str, float]], unk_id: int, *, byte_fallback: bool) -> BPE:
    """SentencePiece's BPE, which joins the pair whose result has the best score: every split of a piece is a merge."""
    ids = {piece: number for number, (piece, _) in enumerate(pieces)}
    merges = []
    for piece, _ in sorted(pieces, key=lambda each: -each[1]):
        halves = [(piece[:n], piece[n:]) for n in range(1, len(piece))]
        merges += [pair for pair in halves if pair[0] in ids and pair[1] in ids]
    return BPE(ids, merges, unk_token=pieces[unk_id][0], fuse_unk=True, byte_fallback=byte_fallback)
