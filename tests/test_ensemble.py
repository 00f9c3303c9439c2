"""An ensemble against its members' probabilities, averaged by hand."""

import math

import pytest
import torch

from nmt.attention.masks import padding_mask
from nmt.decoding import Hypothesis, force_decode
from nmt.models import ensemble
from nmt.models.base import Translator
from nmt.models.ensemble import EnsembleTranslator
from nmt.run.model import build_translator
from tests.commands import compose
from tests.searches import beam_search, greedy_search, sample
from tests.small import vocabulary
from tests.test_decoding import BOS, EOS, PAD, SOURCES, Table, assert_same, batch_of

VOCABULARY = vocabulary(9, separator_id=None, pad_id=PAD, bos_id=BOS, eos_id=EOS)


def gru(attention: str, seed: int) -> Translator:
    torch.manual_seed(seed)
    overrides = [f"attention={attention}", "encoder.size=8", "decoder.size=8", "model.size=6"]
    config = compose("train", *overrides)
    model = build_translator(config.model, VOCABULARY).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6)
    return model


def averaged_log_probability(members: list[Table], src: list[int], pieces: list[int]) -> float:
    """`sum_t log (1/M sum_m p_m(y_t))` by loops over Python numbers."""
    history, total = sum(src) % 97, 0.0
    for previous, piece in zip([BOS, *pieces], [*pieces, EOS], strict=True):
        history = (3 * history + previous) % 97
        probabilities = []
        for member in members:
            row = [math.exp(logit) for logit in member.table[history].tolist()]
            probabilities.append(row[piece] / sum(row))
        total += math.log(sum(probabilities) / len(members))
    return total


def assert_scored_as_forced(model: Translator, src: list[int], hypotheses: list[Hypothesis]) -> None:
    """Steps under the search's reordering give what one teacher-forced pass gives."""
    forced = force_decode(
        model,
        batch_of(*[src] * len(hypotheses)),
        batch_of(*([BOS, *each.ids] for each in hypotheses)),
        batch_of(*([*each.ids, EOS] for each in hypotheses)),
        need_weights=True,
    )
    for each, again in zip(hypotheses, forced, strict=True):
        assert each.log_prob == pytest.approx(again.log_prob, abs=1e-9)
        torch.testing.assert_close(each.weights, again.weights, rtol=0, atol=1e-9)


def test_an_ensemble_has_the_mean_of_its_members_probabilities() -> None:
    members = [Table(9, seed=1), Table(9, seed=2, attends=False), Table(9, seed=3)]
    ensemble = EnsembleTranslator(members).eval()
    found = beam_search(ensemble, batch_of(*SOURCES), beam_size=4, num_best=4, need_weights=True)
    for src, hypotheses in zip(SOURCES, found, strict=True):
        for each in hypotheses:
            expected = averaged_log_probability(members, src, each.ids)
            assert each.log_prob == pytest.approx(expected, abs=1e-10)
        assert_scored_as_forced(ensemble, src, hypotheses)


def test_members_of_different_kinds_are_averaged() -> None:
    members = [gru("luong_general", seed=1), gru("none", seed=2), gru("coverage", seed=3), Table(9)]
    ensemble, src = EnsembleTranslator(members).eval(), batch_of(*SOURCES)
    tgt_in, src_mask = torch.tensor([[BOS, 3, 4, 5]] * len(src)), padding_mask(src, PAD)
    outputs = [each.forward(each.encode(src, src_mask), tgt_in, need_weights=True) for each in members]
    logits, weights = ensemble.forward(ensemble.encode(src, src_mask), tgt_in, need_weights=True)
    probs = sum(each.logits.softmax(dim=-1) for each in outputs) / 4
    torch.testing.assert_close(logits.exp(), probs, rtol=0, atol=1e-12)
    attending = [each.weights for each in outputs if each.weights is not None]
    assert len(attending) == 3
    torch.testing.assert_close(weights, sum(attending) / 3, rtol=0, atol=1e-12)
    found = beam_search(ensemble, src, beam_size=3, num_best=3, max_length=8, need_weights=True)
    for sentence, hypotheses in zip(SOURCES, found, strict=True):
        assert_scored_as_forced(ensemble, sentence, hypotheses)


@pytest.mark.parametrize("attention", ["luong_general", "coverage", "none"])
def test_an_ensemble_of_one_run_with_itself_changes_nothing(attention: str) -> None:
    model, src = gru(attention, seed=4), batch_of(*SOURCES)
    ensemble = EnsembleTranslator([model, model]).eval()
    assert ensemble.has_attention == model.has_attention

    def translations(translator: Translator) -> list[list[Hypothesis]]:
        beta = 0.3 if translator.has_attention else 0.0
        beams = beam_search(
            translator, src, beam_size=4, num_best=4, coverage_beta=beta, max_length=8, need_weights=True
        )
        greedy = greedy_search(translator, src, max_length=8, need_weights=True)
        samples = sample(translator, src, num_samples=3, seed=0, max_length=8, need_weights=True)
        return [*beams, greedy, *samples]

    for alone, together in zip(translations(model), translations(ensemble), strict=True):
        for one, other in zip(alone, together, strict=True):
            assert_same(one, other)
            assert one.score == pytest.approx(other.score, abs=1e-9)


def test_members_that_do_not_fit_are_refused() -> None:
    other = Table(9)
    other.bos_id = 5
    with pytest.raises(ValueError, match="need the same PAD, BOS and EOS"):
        EnsembleTranslator([Table(9), other])


def test_an_ensemble_reads_no_more_than_its_shortest_member() -> None:
    models = []
    for most in (20, 12):
        overrides = [
            "model=transformer",
            "model.size=8",
            "encoder.num_heads=2",
            "decoder.num_heads=2",
            "encoder.feedforward_size=8",
            "decoder.feedforward_size=8",
        ]
        overrides += ["positions=learned", f"positions.max_length={most}"]
        config = compose("train", *overrides)
        models.append(build_translator(config.model, VOCABULARY).eval())
    assert EnsembleTranslator(models).max_length == 12
    assert EnsembleTranslator([models[0], gru("luong_dot", 1)]).max_length == 20


def test_small_probabilities_of_halves_are_not_lost() -> None:
    logits = torch.tensor([[0.0, -30.0]], dtype=torch.bfloat16)
    found = ensemble._log_mean([logits, logits])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, logits.float().log_softmax(dim=-1), rtol=1e-6, atol=1e-12)
