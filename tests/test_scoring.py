"""How a run is scored: tokenisation, length limits, and the files of scores."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nmt import metrics
from nmt.data.pairs import length_ratio
from nmt.decoding import BEAM, Constraints, DecodingSettings
from nmt.run.checks import count_above_limit
from nmt.training.checks import check_references
from nmt.training.lengths import set_length_ratio, warn_of_long_references
from tests.commands import compose

REFERENCES = {
    "zh": ["老人在家里看书。", "孩子们在公园里玩。", "她买了三个苹果。"],
    "th": ["ชายชราอ่านหนังสือที่บ้าน", "เด็ก ๆ เล่นอยู่ในสวน", "เธอซื้อแอปเปิลสามผล"],
    "en": ["the old man reads a book .", "yes .", "the children play in the park ."],
    "words": ["book", "apple", "park"],
}


def warnings_of(language: str, *overrides: str, caplog) -> str:
    """The warnings before training on references of a language."""
    caplog.clear()
    cfg = compose("train", "data=files", "data.src_lang=xx", *overrides)
    bleu = metrics.Bleu(tokenize=(cfg.metrics.get("bleu") or {}).get("tokenize", "13a"), lowercase=False)
    check_references(cfg, bleu, REFERENCES[language])
    return caplog.text


def test_references_without_four_grams_are_noticed_before_training(caplog):
    for language in ("zh", "th", "en"):
        assert not warnings_of(language, f"data.tgt_lang={language}", caplog=caplog)
    said = warnings_of("zh", "data.tgt_lang=target", caplog=caplog)
    for fact in (
        "100 %",
        "tokenize=13a",
        "target",
        "metrics.bleu.tokenize=char",
        "checkpoint.monitor=val/chrf",
    ):
        assert fact in said
    assert "near 0" in warnings_of("words", "data.tgt_lang=en", caplog=caplog)
    # Labels, which are not scored by BLEU
    labels = ["data.tgt_lang=en", "metrics=classification", "callbacks.checkpoint.monitor=val/chrf"]
    assert not warnings_of("words", *labels, caplog=caplog)
    assert "near 0" in warnings_of("words", *labels[:2], caplog=caplog)  # but choose the checkpoint by it


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_characters_in_place_of_mecab_are_said_in_one_line(language, caplog):
    said = warnings_of("zh", f"data.tgt_lang={language}", "metrics.bleu.tokenize=char", caplog=caplog)
    assert said.count("\n") == 1
    assert f"sacrebleu[{language}]" in said
    assert f"metrics.bleu.tokenize={language}-mecab" in said


@pytest.mark.parametrize(
    ("pairs", "ratio"),
    [
        ([(4, 6)] * 50, -1.25),  # 5 pieces, and 10 may come whatever the source
        ([(10, 31)] * 50, 2.0),
        ([(10, 32)] * 50, 2.25),  # 31 pieces <= 2.1 * 10 + 10, the next quarter
        ([(8, 8)] * 998 + [(10, 111)], 10.0),
        ([(8, 8)] * 999 + [(10, 111)], -0.25),  # one in a thousand is left out
    ],
)
def test_the_ratio_of_lengths_holds_all_but_one_in_a_thousand(pairs, ratio):
    src, tgt = np.array(pairs, dtype=np.int32).T
    assert length_ratio(src, tgt, extra=10) == ratio


def limited(src: list[int], tgt: list[int], *overrides: str) -> float:
    """The `decoding.max_length_ratio` of a training on pairs of these lengths."""
    cfg = compose("train", *overrides)
    lengths = tuple(np.array(each, dtype=np.int32) for each in (src, tgt))
    set_length_ratio(cfg, SimpleNamespace(training_lengths=lambda: lengths))
    return cfg.decoding.max_length_ratio


def test_the_length_limit_follows_the_training_text():
    assert limited([10, 20], [12, 19]) == 2  # the least
    assert limited([10, 20], [31, 60]) == 2.5  # 59 = 2.45 * 20 + 10
    assert limited([10, 20], [31, 95]) == 4  # data.max_ratio; 4.2 would be needed
    assert limited([10, 20], [31, 60], "decoding.max_length_ratio=1.5") == 1.5
    assert limited([10, 20], [31, 60], "decoding.max_length_extra=0") == 3
    assert limited([10, 20], [31, 60], "decoding=greedy") == 2.5


def test_references_above_the_limit_are_counted_as_the_search_would_cut_them():
    translator = SimpleNamespace(max_length=None)
    settings = DecodingSettings(max_length_ratio=2.1, max_length_extra=0.5)
    src, tgt = np.array([15, 15, 4, 1000]), np.array([33, 34, 10, 2000])  # 32, 32, 8 and 2100 pieces may come
    assert count_above_limit(settings, translator, src, tgt) == 2
    limits = Constraints(
        SimpleNamespace(max_length=None, pad_id=0, bos_id=1, eos_id=2), torch.tensor(src), settings, None
    )
    assert limits.limits.tolist() == [32, 32, 8, 2100]
    assert count_above_limit(replace(settings, max_length=20), translator, src, tgt) == 4
    assert count_above_limit(settings, SimpleNamespace(max_length=21), src, tgt) == 4


def test_references_above_the_limit_are_said_in_one_line(caplog):
    lengths = {"train": ([10] * 3000, [12] * 2996 + [99] * 4), "val": ([10] * 5, [12, 12, 12, 40, 40])}
    arrays = {split: tuple(map(np.array, each)) for split, each in lengths.items()}
    data = SimpleNamespace(
        training_lengths=lambda: arrays["train"], rows=lambda split: (None, *arrays[split])
    )
    warn_of_long_references(BEAM, SimpleNamespace(max_length=None), data, {})
    assert caplog.text.count("\n") == 1
    for fact in (
        "=2 x source",
        "extra=10",
        "4 of 3,000 in train",
        "2 of 5 in val",
        "raise decoding.max_length_ratio",
    ):
        assert fact.lower() in caplog.text.lower()
    caplog.clear()
    arrays["train"][1][3000 - 4] = 12  # one in a thousand is no fault
    warn_of_long_references(BEAM, SimpleNamespace(max_length=None), data, {})
    assert "train" not in caplog.records[-1].getMessage()
    arrays["val"][1][:] = 30
    caplog.clear()
    warn_of_long_references(BEAM, SimpleNamespace(max_length=None), data, {})
    assert not caplog.text
