"""Claims that every translator keeps, for encoders and decoders that are neither recurrent nor a Transformer's."""

import pytest
import torch

from nmt.models import select
from nmt.run.model import build_translator
from tests.commands import compose
from tests.small import vocabulary

PAD, BOS, EOS, SEPARATOR = 0, 2, 3, 4
MODELS = {
    "convolutional": ("encoder=convolutional", "attention=multi_head"),
    "convolutional, fed": ("encoder=convolutional", "wiring.input_feeding=true"),
    "hierarchical": ("attention=hierarchical",),
    "sentences": ("attention=sentences",),
    "pooling": ("decoder=pooling",),
    "pooled Transformer": ("decoder=pooling", "encoder=transformer"),
    "voting": ("model.lexical=true", "attention=bahdanau"),
    "voting, pooling": ("model.lexical=true", "decoder=pooling"),
    "voting Transformer": ("model=transformer", "model.lexical=true"),
}
EXACT = {"rtol": 0, "atol": 1e-10}
LENGTHS = (7, 2, 5)
T = 4


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """In float64, with random parameters."""
    torch.manual_seed(0)
    config = compose("train", "model.size=8", *MODELS[request.param])
    model = build_translator(config.model, vocabulary(separator_id=SEPARATOR)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


def sources() -> tuple[torch.Tensor, torch.Tensor]:
    """Three texts, the first and the last of two sentences, and their mask."""
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    src = torch.randint(5, 20, mask.shape).masked_fill(~mask, PAD)
    src[0, 3] = src[2, 1] = SEPARATOR
    for row, length in enumerate(LENGTHS):
        src[row, length - 1] = EOS
    return src, mask


def targets() -> torch.Tensor:
    return torch.cat((torch.full((len(LENGTHS), 1), BOS), torch.randint(5, 20, (len(LENGTHS), T - 1))), dim=1)


@torch.no_grad()
def test_rewriting_the_padding_changes_no_output(model):
    (src, mask), tgt_in = sources(), targets()
    expected = model(model.encode(src, mask), tgt_in).logits
    rewritten = torch.where(mask, src, torch.randint(5, 20, src.shape))
    torch.testing.assert_close(model(model.encode(rewritten, mask), tgt_in).logits, expected, **EXACT)


@torch.no_grad()
def test_a_batch_equals_its_sentences_one_by_one(model):
    (src, mask), tgt_in = sources(), targets()
    logits, weights = model(model.encode(src, mask), tgt_in, need_weights=True)
    for row, length in enumerate(LENGTHS):
        alone = model.encode(src[row : row + 1, :length], mask[row : row + 1, :length])
        expected, expected_weights = model(alone, tgt_in[row : row + 1], need_weights=True)
        torch.testing.assert_close(logits[row], expected[0], **EXACT)
        torch.testing.assert_close(weights[row, :, :length], expected_weights[0], **EXACT)
        assert not weights[row, :, length:].any()


@torch.no_grad()
def test_the_future_of_the_target_changes_no_earlier_logits(model):
    (src, mask), tgt_in = sources(), targets()
    memory = model.encode(src, mask)
    before = model(memory, tgt_in).logits
    for t in range(T - 1):
        changed = tgt_in.clone()
        changed[:, t + 1 :] = (tgt_in[:, t + 1 :] + 1) % 20
        after = model(memory, changed).logits
        torch.testing.assert_close(after[:, : t + 1], before[:, : t + 1], **EXACT)
        assert not torch.isclose(after[:, t + 1], before[:, t + 1]).all()


@torch.no_grad()
def test_reordered_hypotheses_step_as_forced_targets_do(model):
    """Each hypothesis goes on in the place of another one of its own text."""
    (src, mask), tgt_in = sources(), targets()
    memory = select(model.encode(src, mask), torch.tensor([0, 0, 1, 1]))
    tgt_in, order = tgt_in[[0, 1, 2, 0]], torch.tensor([1, 0, 3, 2])
    state = model.init_state(memory)
    for t in range(2):
        state = model.step(tgt_in[:, t], state, memory).state
    found = model.step(tgt_in[order, 2], select(state, order), memory).logits
    torch.testing.assert_close(found, model(memory, tgt_in[order]).logits[:, 2], **EXACT)


def test_a_gradient_reaches_every_parameter(model):
    src, mask = sources()
    model.zero_grad()
    model(model.encode(src, mask), targets()).logits.square().sum().backward()
    assert [name for name, each in model.named_parameters() if each.grad is None or not each.grad.any()] == []
