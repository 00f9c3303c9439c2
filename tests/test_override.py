"""Attention that is set by hand, in every mechanism and in a layer of a Transformer."""

from functools import partial
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from nmt import Run
from nmt.attention import (
    AdditiveAttention,
    HierarchicalAttention,
    SentenceAttention,
    fixed_rows,
    override_attention,
)
from nmt.attention.masks import masked_softmax
from nmt.models.base import Translator
from nmt.run.model import build_translator
from tests import test_documents as documents
from tests.commands import CONFIGS, compose
from tests.small import SMALL, make_run

DOCUMENTS = ("hierarchical", "sentences")
ATTENTIONS = sorted(
    file.stem for file in (CONFIGS / "attention").glob("*.yaml") if file.stem not in ("none", *DOCUMENTS)
)
TRANSFORMER = ["model=transformer", "model.size=8", "encoder.feedforward_size=8", "decoder.feedforward_size=8",
               "encoder.num_heads=2", "decoder.num_heads=2", "decoder.num_layers=2"]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Any:
    return Run.load(make_run(tmp_path_factory.mktemp("run"), *SMALL), device="cpu").tokenizer


def inputs(model: Translator, length: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A source of 5 positions, its mask, and a target [1, T] that begins with BOS."""
    src = torch.tensor([[7, 8, 9, 10, model.eos_id]])
    return src, torch.ones_like(src, dtype=torch.bool), torch.tensor([[model.bos_id, *range(7, 6 + length)]])


def translator(tokenizer: Any, *choices: str) -> Any:
    model = OmegaConf.create(OmegaConf.to_container(compose("train", *choices).model, resolve=True))
    return build_translator(model, tokenizer).eval()


WAYS = [
    *((f"attention={name}", *SMALL) for name in ATTENTIONS),
    *(("attention=bahdanau", f"wiring={name}", *SMALL) for name in ("update_then_attend", "conditional")),
    ("attention=luong_dot", "wiring.input_feeding=true", *SMALL),
    tuple(TRANSFORMER),
]


@torch.inference_mode()
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way[:2]).replace("encoder.size=8", ""))
def test_any_attention_can_be_held_and_the_rest_is_left_alone(way, tokenizer):
    model = translator(tokenizer, *way)
    src, mask, tgt = inputs(model)
    memory, attention = model.encode(src, mask), model.decoder.cross_attentions[-1]
    free = model.forward(memory, tgt, need_weights=True)
    with override_attention(attention, fixed_rows({})):
        assert torch.equal(model.forward(memory, tgt).logits, model.forward(memory, tgt).logits)
        assert torch.equal(model.forward(memory, tgt, need_weights=True).logits, free.logits)
    row = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    with override_attention(attention, fixed_rows({3: row})):
        held = model.forward(memory, tgt, need_weights=True)
        cross = model.attentions(src, mask, tgt).cross[0]  # [L, K, T, S]
        stepped, state = [], model.init_state(memory)
        for piece in tgt.T:
            logits, state, _ = model.step(piece, state, memory)
            stepped.append(logits)
    assert torch.equal(held.logits[:, :3], free.logits[:, :3])
    assert torch.equal(cross[-1, :, 3], row.expand_as(cross[-1, :, 3]))  # every head of the layer
    assert not torch.equal(held.logits[:, 3], free.logits[:, 3])
    torch.testing.assert_close(torch.stack(stepped, dim=1), held.logits, atol=1e-5, rtol=1e-4)
    assert torch.equal(model.forward(memory, tgt).logits, model.forward(memory, tgt).logits)


@torch.inference_mode()
def test_the_context_of_a_held_position_is_the_mean_of_its_states(tokenizer):
    model = translator(tokenizer, "attention=local_p", *SMALL)
    src, mask, _ = inputs(model)
    memory, attention = model.encode(src, mask), model.decoder.attention
    query, row = torch.randn(1, 2, 8), torch.tensor([0.5, 0.0, 0.0, 0.0, 0.5])
    with override_attention(attention, fixed_rows({1: row})):
        found = attention(
            query, memory.keys, memory.states, mask, positions=torch.tensor([[0, 1]]), past=None
        )
    expected = (memory.states[0, 0] + memory.states[0, 4]) / 2
    torch.testing.assert_close(found.context[0, 1], expected)


@torch.inference_mode()
@pytest.mark.parametrize("kind", [HierarchicalAttention, SentenceAttention])
def test_attention_to_documents_can_be_held(kind):
    content = partial(AdditiveAttention, size=4, temperature=1.0, normalizer=masked_softmax)
    attention = kind(query_size=documents.SIZE, key_size=documents.SIZE, content=content).double()
    sizes, encoder = [[3, 2]], documents.make_encoder()
    rows = [documents.ids_of(each) for each in sizes]
    _, free = documents.attended(attention, encoder, rows)
    row = torch.zeros(free.weights.size(-1), dtype=torch.double)
    row[4] = 1  # the first sentence has three words and the sign that ends it
    with override_attention(attention, fixed_rows({1: row})):
        _, held = documents.attended(attention, encoder, rows)
    assert torch.equal(held.weights[0, 1], row)
    assert torch.equal(held.weights[0, [0, 2]], free.weights[0, [0, 2]])
    encoded = encoder(*documents.batch_of(rows))
    expected = encoded.states[0, 4] if kind is HierarchicalAttention else encoded.document.states[0, 1]
    torch.testing.assert_close(held.context[0, 1], expected)


@torch.inference_mode()
def test_a_layer_alone_is_held_in_a_transformer(tokenizer):
    model = translator(tokenizer, *TRANSFORMER)
    src, mask, tgt = inputs(model)
    free = model.attentions(src, mask, tgt).cross[0]
    with override_attention(model.decoder.cross_attentions[1], fixed_rows({2: torch.eye(5)[0]})):
        held = model.attentions(src, mask, tgt).cross[0]
    assert torch.equal(held[0], free[0])
    assert torch.equal(held[1, :, 2], torch.eye(5)[[0, 0]])
