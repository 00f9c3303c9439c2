"""Claims that every translator keeps: recurrent, Transformer, convolutional, pooling, and of documents."""

import pytest
import torch

from nmt.models import EncoderDecoder, select
from nmt.run.model import build_translator
from tests import test_recurrent, test_transformer
from tests.commands import compose
from tests.small import vocabulary

SEPARATOR = 4
COMPOSED = {
    "convolutional": ("encoder=convolutional", "attention=multi_head"),
    "convolutional, fed": ("encoder=convolutional", "wiring.input_feeding=true"),
    "hierarchical": ("attention=hierarchical", "content=dot"),
    "hierarchical, sparse": (
        "attention=hierarchical",
        "normalizer=sparsemax",
        "encoder@encoder.words=transformer",
    ),
    "sentences": ("attention=sentences", "wiring=conditional"),
    "read as one text": ("attention=luong_general", "encoder=hierarchical"),
    "not attended": ("attention=none", "encoder=hierarchical"),
    "pooling": ("decoder=pooling", "attention=multi_head"),
    "pooling, local": ("decoder=pooling", "attention=local_p"),
    "pooling, sentences": ("decoder=pooling", "attention=sentences"),
    "pooled Transformer": ("decoder=pooling", "encoder=transformer"),
    "voting": ("model.lexical=true", "attention=bahdanau"),
    "voting, pooling": ("model.lexical=true", "decoder=pooling"),
    "voting Transformer": ("model=transformer", "model.lexical=true"),
}
EXACT = {"rtol": 0, "atol": 1e-10}
LENGTHS = (6, 2, 5)
PIECES = (5, 11)  # from the first up to the second, in every vocabulary
B, T, K = 3, 4, 3  # K hypotheses a sentence


def composed(*settings: str) -> EncoderDecoder:
    """A translator in float64, with random parameters."""
    config = compose("train", "model.size=8", *settings)
    model = build_translator(config.model, vocabulary(separator_id=SEPARATOR)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


MODELS = {
    **{"-".join(map(str, case)): (test_recurrent.build, (case,), {}) for case in test_recurrent.VARIETY},
    **{
        f"Transformer {name}": (test_transformer.build, (), own)
        for name, own in test_transformer.SETTINGS.items()
    },
    **{name: (composed, settings, {}) for name, settings in COMPOSED.items()},
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    torch.manual_seed(0)
    build, arguments, keywords = MODELS[request.param]
    return build(*arguments, **keywords)


def sources(model) -> tuple[torch.Tensor, torch.Tensor]:
    """Three texts, the first and the last of two sentences, and their mask."""
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    src = torch.randint(*PIECES, mask.shape).masked_fill(~mask, model.pad_id)
    src[0, 3] = src[2, 1] = SEPARATOR
    for row, length in enumerate(LENGTHS):
        src[row, length - 1] = model.eos_id
    return src, mask


def targets(model, number: int = B) -> torch.Tensor:
    """Inputs of the decoder [number, T], which begin with BOS."""
    first = torch.full((number, 1), model.bos_id)
    return torch.cat((first, torch.randint(*PIECES, (number, T - 1))), dim=1)


def both_ways(model, src, mask, tgt_in):
    """Logits and weights with weights asked for, and the logits without."""
    memory = model.encode(src, mask)
    return *model(memory, tgt_in, need_weights=True), model(memory, tgt_in).logits


@torch.no_grad()
def test_rewriting_the_padding_changes_no_output(model):
    (src, mask), tgt_in = sources(model), targets(model)
    rewritten = torch.where(mask, src, torch.randint(*PIECES, src.shape))
    assert not torch.equal(rewritten, src)
    expected = both_ways(model, src, mask, tgt_in)
    torch.testing.assert_close(both_ways(model, rewritten, mask, tgt_in), expected, **EXACT)


@torch.no_grad()
def test_a_batch_equals_its_sentences_one_by_one(model):
    """Padding after the end of a target changes nothing of it either."""
    (src, mask), tgt_in = sources(model), targets(model)
    tgt_lengths = [2, 4, 3]
    for row, length in enumerate(tgt_lengths):
        tgt_in[row, length:] = model.pad_id
    logits, weights, fused = both_ways(model, src, mask, tgt_in)
    for row, (length, tgt_length) in enumerate(zip(LENGTHS, tgt_lengths, strict=True)):
        own = slice(row, row + 1)
        alone = both_ways(model, src[own, :length], mask[own, :length], tgt_in[own, :tgt_length])
        torch.testing.assert_close(alone[0], logits[own, :tgt_length], **EXACT)
        torch.testing.assert_close(alone[2], fused[own, :tgt_length], **EXACT)
        if model.has_attention:
            torch.testing.assert_close(alone[1], weights[own, :tgt_length, :length], **EXACT)
            assert not weights[own, :, length:].any()


@torch.no_grad()
@pytest.mark.parametrize("num_hypotheses", [1, K])
def test_step_repeated_equals_forward(num_hypotheses, model):
    """With K hypotheses a sentence, which share its memory, each equals a sentence of its own."""
    memory, tgt_in = model.encode(*sources(model)), targets(model, B * num_hypotheses)
    owner = torch.arange(B).repeat_interleave(num_hypotheses)
    expected = model(select(memory, owner), tgt_in, need_weights=True)
    for need_weights in (True, False):
        state = select(model.init_state(memory), owner)
        for t in range(T):
            logits, state, weights = model.step(tgt_in[:, t], state, memory, need_weights=need_weights)
            torch.testing.assert_close(logits, expected.logits[:, t], **EXACT)
            assert (weights is None) == (not need_weights or not model.has_attention)
            if weights is not None:
                torch.testing.assert_close(weights, expected.weights[:, t], **EXACT)


@torch.no_grad()
def test_reordered_hypotheses_step_as_those_that_they_became(model):
    """At each step hypotheses die and multiply within their sentence, and once a sentence leaves the batch."""
    memory = model.encode(*sources(model))
    state = select(model.init_state(memory), torch.arange(B).repeat_interleave(K))
    prefixes = torch.full((B * K, 1), model.bos_id)
    for t in range(T):
        logits, state, _ = model.step(prefixes[:, -1], state, memory)
        expected = model(select(memory, torch.arange(len(prefixes)) // K), prefixes).logits[:, -1]
        torch.testing.assert_close(logits, expected, **EXACT)
        num_sentences = len(prefixes) // K
        order = torch.arange(num_sentences).unsqueeze(1) * K + torch.randint(K, (num_sentences, K))
        if t == 1:
            order, memory = order[1:], select(memory, torch.arange(1, B))
        state, prefixes = select((state, prefixes), order.flatten())
        prefixes = torch.cat((prefixes, torch.randint(*PIECES, (len(prefixes), 1))), dim=1)


@torch.no_grad()
def test_a_step_leaves_the_state_it_was_given_alone(model):
    memory = model.encode(*sources(model))
    _, state, _ = model.step(torch.full((B,), model.bos_id), model.init_state(memory), memory)
    first = model.step(torch.full((B,), 5), state, memory).logits
    model.step(torch.full((B,), 7), state, memory)
    assert torch.equal(model.step(torch.full((B,), 5), state, memory).logits, first)


@torch.no_grad()
@pytest.mark.parametrize("need_weights", [False, True])
def test_the_future_of_the_target_changes_no_earlier_logits(need_weights, model):
    memory, tgt_in = model.encode(*sources(model)), targets(model)
    before = model(memory, tgt_in, need_weights=need_weights).logits
    for t in range(1, T):
        changed = tgt_in.clone()
        changed[:, t:] = (tgt_in[:, t:] - 4) % 6 + 5  # another piece at each position
        after = model(memory, changed, need_weights=need_weights).logits
        torch.testing.assert_close(after[:, :t], before[:, :t], **EXACT)
        assert not torch.isclose(after[:, t], before[:, t]).all(), "the present should matter"


def test_a_gradient_reaches_every_parameter(model):
    """None is dead: such a one would never train, and DistributedDataParallel refuses it."""
    model.zero_grad()
    model(model.encode(*sources(model)), targets(model)).logits.square().sum().backward()
    assert [name for name, each in model.named_parameters() if each.grad is None or not each.grad.any()] == []
