"""How a run is scored: tokenisation, length limits, and the files of scores."""

import pytest

from nmt import metrics
from nmt.training.checks import check_references
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
