"""The Transformer against torch.nn with copied weights, and the claims that any translator must keep."""

import cmath
import math
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn

from nmt.errors import UserError
from nmt.layers.dropout import Dropout
from nmt.layers.positions import LearnedPositions, RotaryPositions, SinusoidalPositions, turn
from nmt.models import EncoderDecoder
from tests.test_recurrent import BOS, EOS, PAD, B, S, T, V, sources, targets, teacher_forced
from tests.translators import transformer_translator

EXACT = {"rtol": 0, "atol": 1e-10}
H, F, HEADS, L = 8, 20, 2, 3

NORMS = ("encoder.norm", "decoder.norm")
POSITIONS = {
    "sinusoidal": SinusoidalPositions,
    "learned": partial(LearnedPositions, max_length=6),
    "rotary": RotaryPositions,
}
SETTINGS = {
    f"{'pre' if pre_norm else 'post'}-{name}": {"pre_norm": pre_norm, "positions": POSITIONS[name]}
    for pre_norm, name in product((True, False), POSITIONS)
}


def fresh(**changes) -> EncoderDecoder:
    """A small translator as it starts."""
    options = {
        "src_vocab_size": V + 2,
        "tgt_vocab_size": V,
        "joint_vocabulary": False,
        "pad_id": PAD,
        "bos_id": BOS,
        "eos_id": EOS,
        "size": H,
        "feedforward_size": F,
        "num_heads": HEADS,
        "num_encoder_layers": L,
        "num_decoder_layers": L,
        "pre_norm": True,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "word_dropout": 0.0,
        "tie_output": False,
        "tie_source": False,
        "alignment_layer": None,
        "gradient_checkpointing": False,
        "positions": SinusoidalPositions,
    }
    return transformer_translator(**(options | changes))


def build(**changes) -> EncoderDecoder:
    """One in float64, every parameter (biases, norms and the padding's embedding too) random."""
    model = fresh(**changes).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


def gradients(model: nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


# --- the equations --------------------------------------------------------------------------------------


def torchs_name(name: str, in_decoder: bool) -> tuple[str, slice]:
    """The parameter of torch.nn's layer that is ours of `name`, and the rows of it."""
    everything, query, rest = slice(None), slice(H), slice(H, None)
    module, _, kind = name.rpartition(".")
    last = "norm3" if in_decoder else "norm2"
    whole = {
        "self_attention.output": "self_attn.out_proj",
        "cross_attention.output": "multihead_attn.out_proj",
        "feedforward.inner": "linear1",
        "feedforward.outer": "linear2",
        "around_self.norm": "norm1",
        "around_cross.norm": "norm2",
        "around_feedforward.norm": last,
    }
    fused = {
        "self_attention.projection": ("self_attn.in_proj", everything),
        "cross_attention.query_projection": ("multihead_attn.in_proj", query),
        "cross_attention.states_projection": ("multihead_attn.in_proj", rest),
    }
    if module in whole:
        return f"{whole[module]}.{kind}", everything
    prefix, rows = fused[module]
    return f"{prefix}_{kind}", rows


@pytest.mark.parametrize("pre_norm", [True, False])
def test_stacks_are_those_of_torch_nn(pre_norm):
    """Outputs, and the gradient of every parameter, of torch.nn's layers with the same weights."""
    model, (src, mask), tgt_in = build(pre_norm=pre_norm), sources(), targets()
    shape = {"nhead": HEADS, "dim_feedforward": F, "dropout": 0.0, "batch_first": True}
    make = partial(nn.TransformerEncoderLayer, H, norm_first=pre_norm, dtype=torch.float64, **shape)
    encoder = nn.ModuleList(make() for _ in range(L))
    make = partial(nn.TransformerDecoderLayer, H, norm_first=pre_norm, dtype=torch.float64, **shape)
    decoder = nn.ModuleList(make() for _ in range(L))
    norms = {name: nn.LayerNorm(H, dtype=torch.float64) if pre_norm else nn.Identity() for name in NORMS}
    for name, norm in norms.items():
        norm.load_state_dict(model.get_submodule(name).state_dict())
    with torch.no_grad():
        for ours, theirs in ((model.encoder.layers, encoder), (model.decoder.layers, decoder)):
            for number, layer in enumerate(ours):
                for name, parameter in layer.named_parameters():
                    other, rows = torchs_name(name, theirs is decoder)
                    theirs[number].get_parameter(other)[rows] = parameter

    x = sinusoids(math.sqrt(H) * model.encoder.embedding(src))
    for layer in encoder:
        x = layer(x, src_key_padding_mask=~mask)  # theirs is True where padded
    states = norms["encoder.norm"](x)
    x = sinusoids(math.sqrt(H) * model.decoder.embedding(tgt_in))
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    for layer in decoder:
        x = layer(x, states, tgt_mask=future, memory_key_padding_mask=~mask)
    expected = model.output(norms["decoder.norm"](x))

    logits, _ = model(model.encode(src, mask), tgt_in)
    torch.testing.assert_close(model.encoder(src, mask).states[mask], states[mask], **EXACT)
    torch.testing.assert_close(logits, expected, **EXACT)

    reference = nn.ModuleDict(
        {
            "encoder": nn.ModuleDict({"embedding": model.encoder.embedding, "layers": encoder}),
            "decoder": nn.ModuleDict({"embedding": model.decoder.embedding, "layers": decoder}),
            "output": model.output,
        }
    )
    for side in ("encoder", "decoder"):
        reference[side]["norm"] = norms[f"{side}.norm"]
    probe = torch.randn_like(logits)
    expected_gradients = gradients(reference, (expected * probe).sum())
    for name, gradient in gradients(model, (logits * probe).sum()).items():
        side, _, rest = name.partition(".layers.")
        expected_gradient = expected_gradients.get(name)
        if rest:
            number, _, rest = rest.partition(".")
            other, rows = torchs_name(rest, side == "decoder")
            expected_gradient = expected_gradients[f"{side}.layers.{number}.{other}"][rows]
        torch.testing.assert_close(gradient, expected_gradient, **EXACT)


def sinusoids(embedded: torch.Tensor, first: int = 0) -> torch.Tensor:
    """embedded [B, T, H] plus the table of Vaswani et al. (2017, 3.5), element by element."""
    table = torch.zeros(embedded.shape[1:], dtype=embedded.dtype)
    for t in range(embedded.size(1)):
        for unit in range(embedded.size(2)):
            angle = (first + t) / 10000 ** (2 * (unit // 2) / embedded.size(2))
            table[t, unit] = math.cos(angle) if unit % 2 else math.sin(angle)
    return embedded + table


def test_sinusoidal_positions_are_the_papers():
    embedded = torch.randn(2, 7, H, dtype=torch.float64)
    positions = SinusoidalPositions(size=H)
    torch.testing.assert_close(positions(embedded, first=0), sinusoids(embedded), **EXACT)
    torch.testing.assert_close(positions(embedded, first=300), sinusoids(embedded, 300), **EXACT)
    half = positions(torch.zeros(1, 7, H, dtype=torch.bfloat16), first=300)  # which cannot count to 300
    expected = sinusoids(torch.zeros(1, 7, H, dtype=torch.float64), 300)
    torch.testing.assert_close(half.double(), expected, rtol=0, atol=2**-8)


def test_learned_positions_are_rows_of_a_table_that_ends():
    positions = LearnedPositions(size=H, max_length=6)
    embedded = torch.randn(2, 4, H)
    assert torch.equal(positions(embedded, first=2), embedded + positions.table[2:])
    with pytest.raises(UserError, match=r"7 pieces is longer than positions\.max_length=6: train with more"):
        positions(embedded, first=3)
    assert issubclass(UserError, ValueError)


@pytest.mark.parametrize("size", [8, 7])
def test_rotary_positions_turn_pairs_of_numbers_as_a_complex_product(size):
    positions = RotaryPositions(size=2 * size)
    x = torch.randn(3, 2, 5, size, dtype=torch.float64)  # [B, K, T, d]
    embedded = torch.randn(3, 5, 2 * size, dtype=torch.float64)
    assert positions(embedded, first=4) is embedded
    turned = turn(x, positions.turns(embedded, first=4, num_heads=2))
    half = size // 2
    for t in range(5):
        for unit in range(half):
            angle = (4 + t) / 10000 ** (unit / half)
            number = torch.complex(x[:, :, t, unit], x[:, :, t, half + unit]) * cmath.exp(1j * angle)
            torch.testing.assert_close(turned[:, :, t, unit], number.real, **EXACT)
            torch.testing.assert_close(turned[:, :, t, half + unit], number.imag, **EXACT)
    assert torch.equal(turned[..., 2 * half :], x[..., 2 * half :])


def test_rotary_scores_depend_on_the_distance_alone():
    query, key = torch.randn(2, 1, 1, 7, 8, dtype=torch.float64)
    scores = []
    for first in (0, 300):
        turns = RotaryPositions(size=8).turns(
            torch.zeros(1, 7, 8, dtype=torch.float64), first=first, num_heads=1
        )
        scores.append(turn(query, turns) @ turn(key, turns).transpose(-2, -1))
    torch.testing.assert_close(*scores)
    assert (scores[0] - query @ key.transpose(-2, -1)).abs().max() > 0.1


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)
def test_a_target_read_piece_by_piece_is_the_target_read_whole(positions):
    model, (src, mask), tgt_in = build(positions=positions), sources(), targets()
    memory = model.encode(src, mask)
    state, logits = model.init_state(memory), []
    for t in range(T):
        step = model.step(tgt_in[:, t], state, memory)
        state = step.state
        logits.append(step.logits)
    torch.testing.assert_close(torch.stack(logits, dim=1), model(memory, tgt_in).logits, **EXACT)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_path_that_gives_weights_equals_the_fused_one(settings):
    """Logits, and the gradient of every parameter; and of `attentions`, every layer and head."""
    model, (src, mask), tgt_in = build(**settings), sources(), targets()
    fused = model(model.encode(src, mask), tgt_in)
    assert fused.weights is None
    plain = teacher_forced(model, src, mask, tgt_in)
    torch.testing.assert_close(plain.logits, fused.logits, **EXACT)
    with torch.no_grad():  # two products, for the few queries of a search
        torch.testing.assert_close(model(model.encode(src, mask), tgt_in).logits, fused.logits, **EXACT)
    probe = torch.randn_like(fused.logits)
    expected = gradients(model, (fused.logits * probe).sum())
    for name, gradient in gradients(model, (plain.logits * probe).sum()).items():
        torch.testing.assert_close(gradient, expected[name], **EXACT)
    encoded, _ = model.encoder.attentions(src, mask)
    torch.testing.assert_close(encoded.states[mask], model.encoder(src, mask).states[mask], **EXACT)
    memory = model.decoder.prepare(encoded)
    top, _ = model.decoder._decode(tgt_in, None, memory, need_self=True, need_cross=range(L))
    torch.testing.assert_close(model.output(top), fused.logits, **EXACT)


def test_weights_are_those_of_torch_nn():
    """Every head's, of the first layers, whose inputs a few lines give."""
    model, (src, mask), tgt_in = build(pre_norm=False), sources(), targets()
    attentions = model.attentions(src, mask, tgt_in)
    assert attentions.cross.shape == (B, L, HEADS, T, S)
    for weights, stack, ids, embedding in (
        (attentions.encoder_self, model.encoder, src, model.encoder.embedding),
        (attentions.decoder_self, model.decoder, tgt_in, model.decoder.embedding),
    ):
        projection = stack.layers[0].self_attention.projection
        reference = nn.MultiheadAttention(H, HEADS, batch_first=True, dtype=torch.float64)
        with torch.no_grad():
            reference.in_proj_weight.copy_(projection.weight)
            reference.in_proj_bias.copy_(projection.bias)
        x = sinusoids(math.sqrt(H) * embedding(ids))
        size = ids.size(1)
        if stack is model.encoder:
            masks = {"key_padding_mask": ~mask}
        else:
            masks = {"attn_mask": torch.ones(size, size, dtype=torch.bool).triu(1)}
        _, expected = reference(x, x, x, need_weights=True, average_attn_weights=False, **masks)
        torch.testing.assert_close(weights[:, 0], expected, **EXACT)


def test_attention_rows_sum_to_one_over_what_may_be_looked_at():
    model, (src, mask), tgt_in = build(), sources(), targets()
    cross, encoder_self, decoder_self = model.attentions(src, mask, tgt_in)
    for weights in (cross, encoder_self, decoder_self):
        sums = weights.sum(dim=-1)
        torch.testing.assert_close(sums, torch.ones_like(sums), **EXACT)
    for weights in (cross, encoder_self):
        assert not weights.masked_fill(mask[:, None, None, None], 0.0).any()
    assert not decoder_self.triu(1).any()


@pytest.mark.parametrize("layer", [None, 0, L - 1])
def test_weights_are_the_mean_over_heads_of_the_chosen_layers(layer):
    model, (src, mask), tgt_in = build(alignment_layer=layer), sources(), targets()
    weights = teacher_forced(model, src, mask, tgt_in).weights
    cross = model.attentions(src, mask, tgt_in).cross
    expected = cross.mean(dim=(1, 2)) if layer is None else cross[:, layer].mean(dim=1)
    torch.testing.assert_close(weights, expected, **EXACT)
    memory = model.encode(src, mask)
    step = model.step(tgt_in[:, 0], model.init_state(memory), memory, need_weights=True)
    torch.testing.assert_close(step.weights, expected[:, 0], **EXACT)
    queries = model.decoder.layers[layer or 0].cross_attention.query_projection.weight
    (gradient,) = torch.autograd.grad(weights.square().sum(), queries)
    assert gradient.abs().max() > 1e-6


# --- training -------------------------------------------------------------------------------------------


def test_checkpointing_changes_nothing_but_the_memory():
    """Not even what is dropped: the layers are run again from the same random state."""
    drops = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "word_dropout"), 0.2)
    plain, again = build(**drops).train(), build(**drops, gradient_checkpointing=True).train()
    again.load_state_dict(plain.state_dict())
    (src, mask), tgt_in = sources(), targets()
    found = []
    for model in (plain, again):
        torch.manual_seed(5)
        logits, weights = teacher_forced(model, src, mask, tgt_in)
        loss = logits.square().sum() + weights.square().sum()
        found.append({"logits": logits, "weights": weights, **gradients(model, loss)})
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, **EXACT)


@pytest.mark.parametrize(
    ("name", "num_places"),
    [
        ("dropout", 2 + 5 * L),
        ("attention_dropout", 3 * L),
        ("activation_dropout", 2 * L),
        ("word_dropout", 2),
    ],
)
def test_each_dropout_takes_effect_in_its_places_in_training_alone(name, num_places):
    """Two embeddings, and two sublayers of each encoder layer and three of each decoder layer."""
    model, (src, mask), tgt_in = build(**{name: 0.5}), sources(), targets()
    places = []
    for module in model.modules():
        if isinstance(module, Dropout) and module.p > 0:
            module.register_forward_hook(lambda module, inputs, output: places.append(output))
    with torch.no_grad():
        expected = teacher_forced(model, src, mask, tgt_in)
        torch.testing.assert_close(tuple(teacher_forced(model, src, mask, tgt_in)), tuple(expected), **EXACT)
        places.clear()
        dropped = teacher_forced(model.train(), src, mask, tgt_in)
        assert len(places) == num_places
        assert all((place == 0).any() for place in places)
        assert not torch.allclose(dropped.logits, expected.logits)
        assert not torch.equal(model.encoder(src, mask).states, model.encoder(src, mask).states)
    sums = dropped.weights.sum(dim=-1)  # what guided alignment reads is what it was before any was dropped
    torch.testing.assert_close(sums, torch.ones_like(sums), **EXACT)


def test_a_dropped_word_keeps_its_position():
    model = build(word_dropout=0.5).train()
    nn.init.ones_(model.encoder.embedding.weight)
    read = []
    model.encoder.layers[0].register_forward_pre_hook(lambda layer, inputs: read.append(inputs[0]))
    model.encoder(torch.full((4, 30), 5), torch.ones(4, 30, dtype=torch.bool))
    words = read[0] - sinusoids(torch.zeros(4, 30, H, dtype=torch.float64))
    words = words.round(decimals=9)
    assert (words == words[..., :1]).all()
    expected = torch.tensor([0, 2 * math.sqrt(H)], dtype=torch.float64)
    torch.testing.assert_close(words.unique(), expected, rtol=0, atol=1e-8)


def test_parameters_start_as_documented():
    model = fresh(size=64, num_heads=4, tie_output=True)
    assert model.output.weight is model.decoder.embedding.weight
    assert model.encoder.embedding is not model.decoder.embedding
    assert not model.encoder.embedding.weight[PAD].any()
    assert abs(model.encoder.embedding.weight[3:].std() * 8 - 1) < 0.1
    bound = math.sqrt(6 / (64 + 64))  # of each part by itself, not of the fused matrix
    for name, parts in (("self_attention.projection", 3), ("cross_attention.states_projection", 2)):
        for part in model.decoder.layers[0].get_submodule(name).weight.chunk(parts):
            assert 0.95 * bound < part.abs().max() <= bound
    assert not any(p.any() for name, p in model.named_parameters() if name.endswith("bias"))


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, r"num_heads must divide model\.size=8, got 3"),
        ({"tie_source": True}, r"tie_source=true needs one joint vocabulary: set model\.tie_source=false or"),
        ({"alignment_layer": L}, rf"alignment_layer={L}: the decoder has {L} layers, counted from 0"),
        ({"alignment_layer": -1}, rf"alignment_layer=-1: the decoder has {L} layers, counted from 0"),
        ({"size": 9, "num_heads": 3}, r"sinusoidal positions need an even model\.size, got 9"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(changes, message):
    with pytest.raises(ValueError, match=message):
        build(**changes)
