"""Explanations of a run's choices: in float64 against finite differences, steps and loops."""

import numpy as np
import pytest
import torch

from nmt import Run
from nmt.analysis import explain
from nmt.analysis.faithfulness import (
    SHARES,
    Faithfulness,
    faithfulness_rows,
    kendall_tau,
    measure_faithfulness,
    summarize_faithfulness,
)
from nmt.data.tokenizer import Tokenizer
from nmt.decoders import RecurrentDecoder
from nmt.errors import UserError
from nmt.run.model import build_translator
from tests.commands import compose

LINES = [
    "the old dog sees a cat .",
    "a bird has seen the garden .",
    "who sleeps ?",
    "nobody hears birds .",
] * 20
SOURCE, TARGET = "the dog sees .", "a cat hears"
SMALL = ("model.size=10", "model.tie_source=false")
MODELS = {
    "general": SMALL,
    "feeding": (*SMALL, "wiring=update_then_attend", "wiring.input_feeding=true"),
    "bahdanau": (*SMALL, "attention=bahdanau", "wiring=attend_then_update", "cell=lstm"),
    "conditional": (
        *SMALL,
        "attention=coverage",
        "wiring=conditional",
        "encoder.size=7",
        "encoder.output_size=null",
    ),
    "multi_head": (*SMALL, "attention=multi_head", "attention.num_heads=2", "decoder.num_layers=2"),
    "convolutional": (*SMALL, "encoder=convolutional", "encoder.num_layers=2"),
    "transformer": (
        *(
            "model=transformer",
            "model.size=8",
            "model.tie_source=false",
            "encoder.num_layers=2",
            "decoder.num_layers=2",
        ),
        *(
            "encoder.num_heads=2",
            "decoder.num_heads=2",
            "encoder.feedforward_size=12",
            "decoder.feedforward_size=12",
        ),
    ),
}
METHODS = ("attention", "value_norm", "gradient", "integrated_gradients", "occlusion")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(LINES, LINES, model_type="bpe", joint=True, vocab_size=60, character_coverage=1.0)


@pytest.fixture(scope="module")
def runs(tokenizer):
    def make(*overrides):
        torch.manual_seed(3)
        translator = build_translator(compose("train", *overrides).model, tokenizer).double()
        with torch.no_grad():
            for parameter in translator.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        return Run(None, None, tokenizer, translator.eval())

    return {name: make(*overrides) for name, overrides in MODELS.items()}


def ids_of(run, source=SOURCE, target=TARGET):
    [src], [tgt] = run.tokenizer.encode_source([source]), run.tokenizer.encode_target([target])
    return src, [run.tokenizer.bos_id, *tgt[:-1]], tgt


@torch.no_grad()
def log_probs_by_steps(run, src, tgt_in, tgt_out):
    """log p [T], a step of decoding at a time."""
    translator = run.translator
    ids = torch.tensor([src])
    memory = translator.encode(ids, torch.ones_like(ids, dtype=torch.bool))
    state, found = translator.init_state(memory), []
    for read, written in zip(tgt_in, tgt_out, strict=True):
        logits, state, _ = translator.step(torch.tensor([read]), state, memory)
        found.append(logits[0].log_softmax(dim=-1)[written].item())
    return np.array(found)


def by_finite_differences(run, share=1.0, change=1e-6, *, origin=None):
    """(x_j - o) · d log p_t / d x_j at o + share * (x - o): each row, which occurs once, moves on from o and back.

    o is 0, or the row `origin`.
    """
    src, tgt_in, tgt_out = ids_of(run)
    assert len(set(src)) == len(src)
    assert len(set(tgt_in)) == len(tgt_in)
    tables = run.translator.encoder.embedding.weight, run.translator.decoder.embedding.weight
    output = run.translator.output.weight
    before, of_output = [each.detach().clone() for each in tables], output.detach().clone()
    tied = output is tables[1]
    origins = [0 * each[0] if origin is None else each[origin] for each in before]
    found = []
    with torch.no_grad():
        for number, ids in enumerate((src, tgt_in)):
            columns = []
            for row in ids:
                ends = []
                for sign in (1, -1):
                    for table, old, start in zip(tables, before, origins, strict=True):
                        table.copy_(start + share * (old - start))
                    way = before[number][row] - origins[number]
                    tables[number][row] = origins[number] + (share + sign * change) * way
                    if tied:  # the output layer stays
                        run.translator.output.weight = torch.nn.Parameter(of_output)
                    ends.append(log_probs_by_steps(run, src, tgt_in, tgt_out))
                columns.append((ends[0] - ends[1]) / (2 * change))
            found.append(np.stack(columns, axis=1))
        for table, old in zip(tables, before, strict=True):
            table.copy_(old)
        if tied:
            run.translator.output.weight = tables[1]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_gradient_times_input_is_the_change_as_an_embedding_grows(runs, name):
    found = explain(runs[name], SOURCE, TARGET, "gradient")
    of_source, of_prefix = by_finite_differences(runs[name])
    np.testing.assert_allclose(found.source, of_source, atol=1e-7)
    np.testing.assert_allclose(found.prefix, of_prefix, atol=1e-7)
    assert found.error is None


@pytest.mark.parametrize("name", ["feeding", "transformer"])
def test_integrated_gradients_are_the_mean_along_the_path(runs, name):
    found = explain(runs[name], SOURCE, TARGET, "integrated_gradients", num_steps=4)
    unknown = runs[name].tokenizer.unk_id
    parts = [
        by_finite_differences(runs[name], share, origin=unknown) for share in (0.125, 0.375, 0.625, 0.875)
    ]
    for scores, number in ((found.source, 0), (found.prefix, 1)):
        np.testing.assert_allclose(scores, np.mean([part[number] for part in parts], axis=0), atol=1e-6)


@pytest.mark.parametrize("name", ["general", "bahdanau", "convolutional"])
def test_integrated_gradients_become_complete(runs, name):
    src, tgt_in, tgt_out = ids_of(runs[name])
    coarse, fine = (
        explain(runs[name], SOURCE, TARGET, "integrated_gradients", num_steps=steps) for steps in (4, 64)
    )
    assert np.abs(fine.error).max() < 1e-3
    assert np.abs(coarse.error).max() > 10 * np.abs(fine.error).max()
    unknown = runs[name].tokenizer.unk_id
    nothing = log_probs_by_steps(runs[name], [unknown] * len(src), [unknown] * len(tgt_in), tgt_out)
    sums = fine.source.sum(axis=1) + fine.prefix.sum(axis=1)
    np.testing.assert_allclose(sums - fine.error, fine.log_probs - nothing, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_occlusion_is_the_log_probability_lost(runs, name):
    src, tgt_in, tgt_out = ids_of(runs[name])
    whole, unknown = log_probs_by_steps(runs[name], src, tgt_in, tgt_out), runs[name].tokenizer.unk_id
    found = explain(runs[name], SOURCE, TARGET, "occlusion")
    np.testing.assert_allclose(found.log_probs, whole, atol=1e-9)
    for place in range(len(src)):
        changed = log_probs_by_steps(runs[name], [*src[:place], unknown, *src[place + 1 :]], tgt_in, tgt_out)
        np.testing.assert_allclose(found.source[:, place], whole - changed, atol=1e-9)
    for place in range(len(tgt_in)):
        changed = log_probs_by_steps(
            runs[name], src, [*tgt_in[:place], unknown, *tgt_in[place + 1 :]], tgt_out
        )
        np.testing.assert_allclose(found.prefix[:, place], whole - changed, atol=1e-9)
    found = explain(runs[name], SOURCE, TARGET, "occlusion", left_out=True)
    for place in range(len(src)):
        changed = log_probs_by_steps(runs[name], [*src[:place], *src[place + 1 :]], tgt_in, tgt_out)
        np.testing.assert_allclose(found.source[:, place], whole - changed, atol=1e-9)
    assert found.prefix is None


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("transformer", "multi_head")])
def test_value_norms_of_a_recurrent_decoder_are_what_the_readout_reads(runs, name):
    """By hooks: the context stands at `context_columns` of the readout's input."""
    wiring = runs[name].translator.decoder.wiring
    contexts, features = [], []
    hooks = [
        wiring.attention.register_forward_hook(lambda module, given, found: contexts.append(found.context)),
        wiring.readout.register_forward_pre_hook(lambda module, given: features.append(given[0])),
    ]
    src, tgt_in, _ = ids_of(runs[name])
    translator, ids = runs[name].translator, torch.tensor([src])
    memory = translator.encode(ids, torch.ones_like(ids, dtype=torch.bool))
    state, weights = translator.init_state(memory), []
    for read in tgt_in:
        _, state, row = translator.step(torch.tensor([read]), state, memory, need_weights=True)
        weights.append(row[0])
    for each in hooks:
        each.remove()
    found = explain(runs[name], SOURCE, TARGET, "value_norm").source
    for t, (context, given) in enumerate(zip(contexts, features, strict=True)):
        torch.testing.assert_close(given.flatten()[wiring.context_columns], context.flatten())
        torch.testing.assert_close(weights[t] @ memory.states[0], context.flatten())
        for j in range(len(src)):
            part = torch.zeros_like(given.flatten())
            part[wiring.context_columns] = weights[t][j] * memory.states[0, j]
            norm = (wiring.readout.weight @ part).norm().item()
            assert found[t, j] == pytest.approx(norm, abs=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer", "multi_head"])
def test_value_norms_of_heads_are_of_their_sum(runs, name):
    """By the change of the output if one source position brings nothing."""
    translator = runs[name].translator
    src, tgt_in, _ = ids_of(runs[name])
    ids, inputs = torch.tensor([src]), torch.tensor([tgt_in])
    memory = translator.encode(ids, torch.ones_like(ids, dtype=torch.bool))
    cross = translator.attentions(ids, torch.ones_like(ids, dtype=torch.bool), inputs).cross[0]
    expected = np.zeros((len(cross), len(tgt_in), len(src)))
    for number, layer in enumerate(cross):
        if isinstance(translator.decoder, RecurrentDecoder):
            module = translator.decoder.attention
            values, output = memory.keys[1][0], module.output_projection.weight
            output = (
                translator.decoder.wiring.readout.weight[:, translator.decoder.wiring.context_columns]
                @ output
            )
        else:
            module = translator.decoder.cross_attentions[number]
            values, output = memory.cross[number].values[0], module.output.weight
        for t in range(len(tgt_in)):
            for j in range(len(src)):
                joined = torch.cat([layer[head, t, j] * values[head, j] for head in range(len(layer))])
                expected[number, t, j] = (output @ joined).norm().item()
    found = explain(runs[name], SOURCE, TARGET, "value_norm").source
    np.testing.assert_allclose(found, expected.mean(axis=0), atol=1e-10)


def test_rollout_follows_every_path(runs):
    src, tgt_in, _ = ids_of(runs["transformer"])
    ids = torch.tensor([src])
    with torch.no_grad():
        cross, own, _ = runs["transformer"].translator.attentions(
            ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([tgt_in])
        )
    first, second = own[0].mean(dim=1).numpy()
    mean = cross[0].mean(dim=(0, 1)).numpy()
    expected = np.zeros_like(mean)
    for t in range(len(tgt_in)):
        for top in range(len(src)):
            for middle in range(len(src)):
                for bottom in range(len(src)):
                    steps = (second[top, middle] + (top == middle)) * (
                        first[middle, bottom] + (middle == bottom)
                    )
                    expected[t, bottom] += mean[t, top] * steps / 4
    found = explain(runs["transformer"], SOURCE, TARGET, "rollout")
    np.testing.assert_allclose(found.source, expected, atol=1e-12)
    np.testing.assert_allclose(found.source.sum(axis=1), 1)


def test_attention_is_that_of_alignments(runs):
    found = explain(runs["general"], SOURCE, TARGET, "attention")
    [(_, weights)] = runs["general"].attentions([SOURCE], [TARGET])
    np.testing.assert_allclose(found.source, weights[0, 0], atol=1e-6)
    aligned = runs["general"].between_units(found.weights, SOURCE, TARGET)
    assert aligned.weights.shape == (len(TARGET.split()), len(SOURCE.split()))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_explanations_have_a_row_for_each_target_piece(runs, name, method):
    found = explain(runs[name], SOURCE, TARGET, method)
    src, _, tgt = ids_of(runs[name])
    assert found.source.shape == (len(tgt), len(src)) == (len(found.target_pieces), len(found.source_pieces))
    assert (found.source_pieces[-1], found.target_pieces[-1]) == ("</s>", "</s>")
    np.testing.assert_allclose(found.weights.sum(axis=1), 1, atol=1e-9)
    if found.prefix is not None:
        assert not np.triu(found.prefix, 1).any()
        assert found.prefix[1:].any()


def test_a_sentence_without_words_is_explained(runs):
    for method in METHODS:
        assert explain(runs["general"], "", "", method).source.shape == (1, 1)
    assert explain(runs["general"], "", "", "occlusion", left_out=True).source.shape == (1, 1)


def test_gradients_are_of_the_run_alone(runs):
    explain(runs["general"], SOURCE, TARGET, "integrated_gradients")
    assert all(each.grad is None for each in runs["general"].translator.parameters())
    assert not any(each._forward_hooks for each in runs["general"].translator.modules())


@pytest.mark.parametrize(
    ("overrides", "method", "settings", "fragment"),
    [
        (SMALL, "lime", {}, "occlusion"),
        (SMALL, "rollout", {}, "Transformer"),
        ((*SMALL, "attention=none"), "attention", {}, "no attention"),
        ((*SMALL, "attention=none"), "value_norm", {}, "value_norm"),
        (SMALL, "integrated_gradients", {"num_steps": 0}, "num_steps=0"),
    ],
)
def test_what_cannot_be_explained_is_refused(tokenizer, overrides, method, settings, fragment):
    run = Run(None, None, tokenizer, build_translator(compose("train", *overrides).model, tokenizer).eval())
    with pytest.raises(UserError, match=fragment):
        explain(run, SOURCE, TARGET, method, **settings)


# -------------------------------------------------------------------------------------------------------- faithfulness


@pytest.mark.parametrize("name", ["general", "transformer"])
def test_faithfulness_is_the_probability_lost_without_the_best_pieces(runs, name):
    run = runs[name]
    src, tgt_in, tgt_out = ids_of(run)
    found = measure_faithfulness(run, [SOURCE, "who sleeps ?"], [TARGET, "a bird"], ["attention", "gradient"])
    assert list(found) == ["attention", "gradient", "random"]
    whole = np.exp(log_probs_by_steps(run, src, tgt_in, tgt_out))
    for method in ("attention", "gradient"):
        scores = explain(run, SOURCE, TARGET, method).source
        lost, left = np.zeros((2, len(SHARES), len(tgt_out)))
        for number, share in enumerate(SHARES):
            for t, row in enumerate(scores):
                best = sorted(range(len(src)), key=lambda j, row=row: -row[j])[
                    : max(1, round(share * len(src)))
                ]
                for kept, result in ((False, lost), (True, left)):
                    ids = [
                        each if (j in best) == kept else run.tokenizer.unk_id for j, each in enumerate(src)
                    ]
                    result[number, t] = whole[t] - np.exp(log_probs_by_steps(run, ids, tgt_in, tgt_out)[t])
        np.testing.assert_allclose(found[method].lost[0], lost.mean(axis=1), atol=1e-9)
        assert found[method].comprehensiveness[0] == pytest.approx(lost.mean(), abs=1e-9)
        assert found[method].sufficiency[0] == pytest.approx(left.mean(), abs=1e-9)
        occlusion = explain(run, SOURCE, TARGET, "occlusion").source
        taus = [kendall_tau(*each) for each in zip(scores, occlusion, strict=True)]
        assert found[method].tau[0] == pytest.approx(np.mean(taus))
        assert {j for _, j in found[method].links[0]} == set(range(len(TARGET.split())))


@pytest.mark.parametrize("seed", range(5))
def test_kendall_tau_counts_pairs_and_ties(seed):
    draw = np.random.default_rng(seed)
    one, other = draw.integers(0, 4, (2, 9)).astype(float)
    agree = differ = tied_one = tied_other = 0
    for i in range(9):
        for j in range(i):
            product = (one[i] - one[j]) * (other[i] - other[j])
            agree, differ = agree + (product > 0), differ + (product < 0)
            tied_one, tied_other = tied_one + (one[i] == one[j]), tied_other + (other[i] == other[j])
    expected = (agree - differ) / np.sqrt((36 - tied_one) * (36 - tied_other))
    assert kendall_tau(one, other) == pytest.approx(expected)
    assert kendall_tau(one, one) == pytest.approx(1)
    assert kendall_tau(one, np.ones(9)) == 0


def test_the_summary_has_intervals_over_sentences():
    links = [{(0, 0)}, {(1, 0)}, {(0, 0)}, {(0, 0)}]
    values = np.array([0.1, 0.2, 0.6, 0.3])
    found = {"gradient": Faithfulness(values[:4], values, np.ones((4, 4)), values, links)}
    result = summarize_faithfulness(found, ["0-0", "0-0", "0-0", "0-0"], 200)["gradient"]
    assert result["tau"]["score"] == pytest.approx(0.3)
    assert result["aer"]["score"] == pytest.approx(0.25)
    assert 0.1 < result["aer"]["ci"] < 0.5
    assert result["lost"] == [1, 1, 1, 1]
    assert "aer" not in summarize_faithfulness(found, None, 0)["gradient"]
    assert summarize_faithfulness(found, None, 0)["gradient"]["tau"]["ci"] == 0
    bare = summarize_faithfulness(found, None, 0)
    header, row, other = faithfulness_rows({"A": {"value_norm": result}, "B": bare})
    assert header[0::6] == ["run", "AER"]
    assert row[:3] == ["A", "value norm", "4"]
    assert row[-1].startswith("0.250 ± ")
    assert other[:3] + other[-1:] == ["B", "gradient", "4", "–"]
