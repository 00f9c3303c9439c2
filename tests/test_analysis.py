"""Attention of other models, grouped and measured: against loops, and with the same weights in two packages."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers

from nmt import Run, alignment, analysis, plotting
from nmt.analysis import (
    LayerAttentions,
    from_transformers,
    head_importance,
    head_measures,
    head_table,
    to_bertviz,
    words_of,
)
from nmt.analysis.words import _BYTES
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.models import EncoderDecoder
from nmt.run.model import build_translator
from tests.commands import compose

LINES = [
    "the old dog sees a cat .",
    "a bird has never seen the garden .",
    "who sleeps ?",
    "nobody hears the birds .",
] * 20


def softmax_rows(*shape: int, causal: bool = False) -> torch.Tensor:
    scores = torch.randn(*shape)
    if causal:
        scores = scores.masked_fill(~torch.ones(shape[-2:], dtype=torch.bool).tril(), float("-inf"))
    return scores.softmax(dim=-1)


# -------------------------------------------------------------------------------------------------------- from outputs


def test_padding_on_either_side_is_left_out():
    weights = softmax_rows(2, 3, 5, 5)
    mask = [[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]]
    outputs = SimpleNamespace(attentions=(weights, weights.flip(1)))
    found = from_transformers(outputs, [list("..abc"), list("abcd.")], mask=torch.tensor(mask))
    assert [list(each) for each in found] == [["encoder"], ["encoder"]]
    assert found[0]["encoder"].source == found[0]["encoder"].target == tuple("abc")
    np.testing.assert_array_equal(found[0]["encoder"].weights[1], weights[0].flip(0)[:, 2:, 2:].numpy())
    np.testing.assert_array_equal(found[1]["encoder"].weights[0], weights[1][:, :4, :4].numpy())


def test_a_decoder_alone_is_told_by_its_mask():
    outputs = SimpleNamespace(attentions=(softmax_rows(1, 2, 4, 4, causal=True),))
    assert list(from_transformers(outputs, [list("abcd")])[0]) == ["decoder"]
    outputs.attentions[0][:, :, 0] = 0.25  # what padding attends to says nothing
    assert list(from_transformers(outputs, [list(".bcd")], mask=[[0, 1, 1, 1]])[0]) == ["decoder"]


def test_outputs_without_attention_are_refused_with_what_to_do():
    with pytest.raises(UserError, match='attn_implementation="eager"'):
        from_transformers(SimpleNamespace(attentions=None), [["a"]])
    both = SimpleNamespace(encoder_attentions=(), decoder_attentions=(), cross_attentions=(1,))
    with pytest.raises(UserError, match="give target_tokens"):
        from_transformers(both, [["a"]])
    with pytest.raises(ValueError, match="there are 1 target and 2 source tokens"):
        LayerAttentions("cross", np.ones((1, 1, 2, 2)), ("a", "b"), ("c",))
    with pytest.raises(ValueError, match="a kind is one of"):
        LayerAttentions("self", np.ones((1, 1, 1, 1)), ("a",), ("a",))


# ------------------------------------------------------------------------------------------------------ words, measures


@pytest.mark.parametrize(
    ("tokens", "words", "numbers"),
    [
        (["[CLS]", "play", "##ing", "out", "[SEP]"], ["[CLS]", "playing", "out", "[SEP]"], [0, 1, 1, 2, 3]),
        (
            ["<s>", "The", "Ġcaf", "Ã©", "Ġis", "</s>"],
            ["<s>", "The", "café", "is", "</s>"],
            [0, 1, 2, 2, 3, 4],
        ),
        (["▁the", "▁do", "g", "▁", ".", "</s>"], ["the", "dog", ".", "</s>"], [0, 1, 1, 2, 2, 3]),
        (["▁hi", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "</s>"], ["hi😀", "</s>"], [0, 0, 0, 0, 0, 1]),
        (["▁a", "▁", "▁b", "<0x0A>", "c"], ["a", "b", "c"], [0, 1, 1, 2, 2]),
        (
            ["▁New▁York", "▁is"],
            ["New", "York", "is"],
            [1, 2],
        ),  # a piece belongs to the last word that it touches
        (["a", "b"], ["a", "b"], [0, 1]),
    ],
)
def test_words_of_each_kind_of_vocabulary(tokens, words, numbers):
    assert words_of(tokens) == (words, numbers)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "unbelievable",
            "two words",
            "a  b",
            "  a",
            "a ",
            "a\nb",
            "a\n\nb c",
            "\ta\tb",
            "a\r\nb",
            "x = {\n    1: 2,\n}",
        ),
        *("café", "猫は 寝ている", "😀 ok", "naïve\nčeština", "## Title"),
    ],
)
@pytest.mark.parametrize("special", [[], ["<s>"]])
def test_words_of_byte_level_pieces_are_those_of_the_text(text, special):
    """Cut as GPT-2 cuts text, and once more; spaces belong to the next word, else to the one before."""
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    pieces = [part for piece, _ in cut for part in (piece[:2], piece[2:]) if part]
    words, numbers = words_of([*special, *pieces], byte_level=True)
    assert words == [*special, *text.split()]
    assert numbers == sorted(numbers)
    spelled = [""] * len(words)
    for piece, number in zip(pieces, numbers[len(special) :], strict=True):
        spelled[number] += "".join(chr(_BYTES[sign]) for sign in piece)
    assert [each.encode("latin-1").decode().split() for each in spelled[len(special) :]] == [
        [word] for word in text.split()
    ]
    if special or not text.isascii() or {"Ġ", "Ċ"} & {piece[0] for piece in pieces}:
        assert words_of([*special, *pieces]) == (words, numbers)  # without being told


def test_ascii_tokens_without_marks_are_words_unless_told():
    assert words_of(["un", "believ", "able"]) == (["un", "believ", "able"], [0, 1, 2])
    assert words_of(["un", "believ", "able"], byte_level=True) == (["unbelievable"], [0, 0, 0])
    head = LayerAttentions("decoder", np.full((1, 1, 2, 2), 0.5), ("un", "able"), ("un", "able"))
    assert analysis.between_words(head, byte_level=True).weights.tolist() == [[[[1.0]]]]


def test_between_words_sums_sources_and_averages_targets():
    weights = softmax_rows(2, 2, 3, 4).double().numpy()
    between = analysis.between_words(
        LayerAttentions("cross", weights, ("▁a", "▁b", "c", "</s>"), ("▁x", "y", "</s>"))
    )
    assert (between.source, between.target) == (("a", "bc", "</s>"), ("xy", "</s>"))
    head = weights[1, 0]
    mean = (head[0] + head[1]) / 2
    np.testing.assert_allclose(between.weights[1, 0, 0], [mean[0], mean[1] + mean[2], mean[3]])


def test_measures_equal_loops():
    texts = [
        LayerAttentions("encoder", softmax_rows(2, 2, n, n).double().numpy(), tokens, tokens)
        for n, tokens in ((4, ("[CLS]", "a", "b", "[SEP]")), (3, ("[CLS]", "[SEP]", "c")))
    ]
    found = head_measures(texts)
    for layer in range(2):
        for head in range(2):
            rows = [(each, t, row) for each in texts for t, row in enumerate(each.weights[layer, head])]
            n = len(rows)

            def mean(values):
                values = list(values)
                return sum(values) / len(values)

            assert found["entropy"][layer, head] == pytest.approx(
                sum(-sum(a * math.log(a) for a in row) for *_, row in rows) / n
            )
            assert found["concentration"][layer, head] == pytest.approx(mean(max(row) for *_, row in rows))
            assert found["previous"][layer, head] == pytest.approx(
                mean(row[t - 1] for _, t, row in rows if t)
            )
            assert found["next"][layer, head] == pytest.approx(
                mean(row[t + 1] for _, t, row in rows if t + 1 < len(row))
            )
            assert found["first"][layer, head] == pytest.approx(mean(row[0] for *_, row in rows))
            separators = (
                sum(a for a, token in zip(row, each.source, strict=True) if token == "[SEP]")
                for each, _, row in rows
            )
            assert found["separators"][layer, head] == pytest.approx(mean(separators))
            own = 2 * layer + head
            alike = {}
            for other in set(range(4)) - {own}:
                divergences = []
                for each, t, row in rows:
                    pair = [row, each.weights[other // 2, other % 2][t]]
                    middle = [(a + b) / 2 for a, b in zip(*pair, strict=True)]
                    divergences.append(
                        sum(a * math.log(a / m) for one in pair for a, m in zip(one, middle, strict=True)) / 2
                    )
                alike[other] = 1 - mean(divergences) / math.log(2)
            assert found["most_similar"][layer, head] == max(alike, key=alike.get)
            assert found["similarity"][layer, head] == pytest.approx(max(alike.values()))
    table = head_table(texts).splitlines()
    assert table[0].split("|")[1].strip() == "layer"
    assert len(table) == 2 + 4
    picture = plotting.measure_grid(found["entropy"], "entropy")
    assert [each.get_text() for each in picture.axes[0].texts] == [
        f"{each:.2f}" for each in found["entropy"].flat
    ]


def test_a_single_head_between_two_texts_has_no_neighbours():
    found = head_measures(
        [LayerAttentions("cross", softmax_rows(1, 1, 2, 3).numpy(), tuple("abc"), tuple("xy"))]
    )
    assert all(np.isnan(found[name]).all() for name in ("previous", "next", "similarity", "most_similar"))
    assert "–" in head_table(
        [LayerAttentions("cross", softmax_rows(1, 1, 2, 3).numpy(), tuple("abc"), tuple("xy"))]
    )
    with pytest.raises(ValueError, match="no text"):
        head_measures([])


# ------------------------------------------------------------------------------------------------------ our own models


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES, LINES, model_type="bpe", joint=True, vocab_size=60, character_coverage=1.0)


def make_run(tokenizer: Tokenizer, *overrides: str) -> Run:
    torch.manual_seed(3)
    translator = build_translator(compose("train", *overrides).model, tokenizer)
    with torch.no_grad():
        for parameter in translator.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return Run(None, None, tokenizer, translator.eval())


TRANSFORMER = (
    "model=transformer", "model.size=16", "encoder.num_layers=2", "decoder.num_layers=2", "encoder.num_heads=2",
    "decoder.num_heads=2", "encoder.feedforward_size=32", "decoder.feedforward_size=32",
)  # fmt: skip


def test_a_run_gives_its_attentions_between_pieces_and_bertviz_takes_them(tokenizer):
    found = analysis.from_run(make_run(tokenizer, *TRANSFORMER), "the old dog .", "a cat ?")
    assert list(found) == ["encoder", "decoder", "cross"]
    assert "".join(found["cross"].source).startswith("▁the▁old")
    assert found["cross"].source[-1] == "</s>"
    assert found["cross"].target[0] == found["decoder"].source[0] == "<s>"
    for each in found.values():
        np.testing.assert_allclose(each.weights.sum(axis=-1), 1, atol=1e-5)
    view = to_bertviz(found)
    assert set(view) == {
        "encoder_attention",
        "decoder_attention",
        "cross_attention",
        "encoder_tokens",
        "decoder_tokens",
    }
    assert [tuple(each.shape[:2]) for each in view["cross_attention"]] == [(1, 2)] * 2
    assert view["decoder_tokens"] == list(found["cross"].target)
    alone = to_bertviz({"encoder": found["encoder"]})
    assert set(alone) == {"attention", "tokens"}


@pytest.mark.parametrize(
    "overrides", [TRANSFORMER, ("attention=multi_head", "attention.num_heads=2", "model.size=8")]
)
def test_a_head_without_which_the_loss_is_the_same_reads_nothing(tokenizer, overrides):
    run = make_run(tokenizer, *overrides)
    before = {name: value.clone() for name, value in run.translator.state_dict().items()}
    found = head_importance(run, LINES[:3], LINES[1:4])
    after = run.translator.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    names = ["decoder.wiring.attention"] if overrides[0] != "model=transformer" else [
        *(f"encoder.layers.{layer}.self_attention" for layer in (0, 1)),
        *(f"decoder.layers.{layer}.{kind}_attention" for layer in (0, 1) for kind in ("self", "cross")),
    ]  # fmt: skip
    assert list(found) == names
    assert all(rise != 0 for each in found.values() for rise in each)
    last = run.translator.get_submodule(names[-1])
    output = getattr(last, "output_projection", None) or last.output
    with torch.no_grad():
        output.weight[:, : output.weight.size(1) // 2] = 0
    assert head_importance(run, LINES[:3], LINES[1:4])[names[-1]][0] == 0


# --------------------------------------------------------------------------------------- models of Hugging Face, random


def small_models():
    transformers = pytest.importorskip("transformers", reason="needs attention-nmt[transformers]")
    common = {"vocab_size": 40, "attn_implementation": "eager"}
    sides = {
        f"{side}_{what}": value
        for side in ("encoder", "decoder")
        for what, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 16))
    }
    both = {"d_model": 8, "decoder_start_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, **sides}
    return {
        "BERT": transformers.BertModel(
            transformers.BertConfig(
                hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, **common
            )
        ),
        "GPT-2": transformers.GPT2Model(transformers.GPT2Config(n_embd=8, n_layer=2, n_head=2, **common)),
        "T5": transformers.T5Model(
            transformers.T5Config(d_model=8, d_kv=4, d_ff=16, num_layers=2, num_heads=2, **common)
        ),
        "Marian": transformers.MarianModel(transformers.MarianConfig(**both, **common)),
        "Pegasus": transformers.PegasusModel(transformers.PegasusConfig(**both, **common)),
    }


@torch.no_grad()
def test_five_families_give_their_attentions():
    src = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    tgt = torch.tensor([[0, 11, 12, 13], [0, 14, 15, 16]])
    tokens, target_tokens = [[[str(each) for each in row] for row in ids.tolist()] for ids in (src, tgt)]
    for name, model in small_models().items():
        arguments = {"input_ids": src, "attention_mask": mask, "output_attentions": True}
        of_both = name in ("T5", "Marian", "Pegasus")
        if of_both:
            arguments["decoder_input_ids"] = tgt
        outputs = model.eval()(**arguments)
        found = from_transformers(
            outputs, tokens, mask=mask, target_tokens=target_tokens if of_both else None
        )
        kinds = ["encoder", "decoder", "cross"] if of_both else ["decoder" if name == "GPT-2" else "encoder"]
        for row, size in enumerate((5, 3)):
            assert list(found[row]) == kinds, name
            for kind, each in found[row].items():
                shape = (2, 2, *{"encoder": (size, size), "decoder": (4, 4), "cross": (4, size)}[kind])
                assert each.weights.shape == (shape if of_both else (2, 2, size, size)), name
                np.testing.assert_allclose(each.weights.sum(axis=-1), 1, atol=1e-5)
        assert len(head_table([each[kinds[-1]] for each in found]).splitlines()) == 2 + 4


def permuted(state: dict[str, torch.Tensor], size: int, size_of_heads: int) -> dict[str, torch.Tensor]:
    """Our weights under Pegasus's names. Its sines stand in the first half of the width, ours at even places: every
    dimension of the residual stream moves."""
    order = torch.cat((torch.arange(0, size, 2), torch.arange(1, size, 2)))
    found = {}
    for side in ("encoder", "decoder"):
        for name in [each for each in state if each.startswith(f"{side}.layers.")]:
            _, _, layer, part, rest = name.split(".", 4)
            kind = name.rpartition(".")[2]
            prefix = f"{side}.layers.{layer}"
            value = state[name]
            if part == "self_attention" and rest.startswith("projection"):
                for key, each in zip(("q_proj", "k_proj", "v_proj"), value.chunk(3), strict=True):
                    found[f"{prefix}.self_attn.{key}.{kind}"] = each[:, order] if each.dim() == 2 else each
            elif part == "cross_attention" and rest.startswith("query_projection"):
                found[f"{prefix}.encoder_attn.q_proj.{kind}"] = value[:, order] if value.dim() == 2 else value
            elif part == "cross_attention" and rest.startswith("states_projection"):
                for key, each in zip(("k_proj", "v_proj"), value.chunk(2), strict=True):
                    found[f"{prefix}.encoder_attn.{key}.{kind}"] = each[:, order] if each.dim() == 2 else each
            elif rest.startswith("output"):
                attention = "self_attn" if part == "self_attention" else "encoder_attn"
                found[f"{prefix}.{attention}.out_proj.{kind}"] = value[order]
            elif rest.startswith("inner"):
                found[f"{prefix}.fc1.{kind}"] = value[:, order] if value.dim() == 2 else value
            elif rest.startswith("outer"):
                found[f"{prefix}.fc2.{kind}"] = value[order]
            else:
                norm = {"around_self": "self_attn_layer_norm", "around_cross": "encoder_attn_layer_norm"}
                found[f"{prefix}.{norm.get(part, 'final_layer_norm')}.{kind}"] = value[order]
        for kind in ("weight", "bias"):
            found[f"{side}.layer_norm.{kind}"] = state[f"{side}.norm.{kind}"][order]
        found[f"{side}.embed_tokens.weight"] = state[f"{side}.embedding.weight"][:, order]
    found["shared.weight"] = found["encoder.embed_tokens.weight"]
    return found


@torch.no_grad()
def test_the_same_weights_give_the_same_attentions_in_both_packages(tokenizer):
    transformers = pytest.importorskip("transformers", reason="needs attention-nmt[transformers]")
    run = make_run(tokenizer, *TRANSFORMER)
    assert isinstance(run.translator, EncoderDecoder)
    sides = {
        f"{side}_{what}": value
        for side in ("encoder", "decoder")
        for what, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 32))
    }
    config = transformers.PegasusConfig(
        vocab_size=tokenizer.src_vocab_size, d_model=16, scale_embedding=True, activation_function="relu",
        max_position_embeddings=64, pad_token_id=0, decoder_start_token_id=2, eos_token_id=3,
        attn_implementation="eager", **sides,
    )  # fmt: skip
    other = transformers.PegasusModel(config).eval()
    missing, unexpected = other.load_state_dict(permuted(run.translator.state_dict(), 16, 8), strict=False)
    assert not unexpected
    assert all("embed_positions" in each for each in missing)
    source, target = LINES[0], LINES[1]
    ours = analysis.from_run(run, source, target)
    [src], [tgt] = tokenizer.encode_source([source]), tokenizer.encode_target([target])
    outputs = other(
        input_ids=torch.tensor([src]),
        decoder_input_ids=torch.tensor([[2, *tgt[:-1]]]),
        output_attentions=True,
    )
    [theirs] = from_transformers(
        outputs, [list(ours["encoder"].source)], target_tokens=[list(ours["decoder"].source)]
    )
    for kind in analysis.attentions.KINDS:
        np.testing.assert_allclose(ours[kind].weights, theirs[kind].weights, atol=1e-5)
        assert (ours[kind].source, ours[kind].target) == (theirs[kind].source, theirs[kind].target)
        assert head_table([ours[kind]]) == head_table([theirs[kind]])
    assert alignment.entropy(ours["cross"].weights).mean() > 0.1
