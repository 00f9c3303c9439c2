"""Copies of training pairs with another pair behind them."""

from typing import Any

from datasets import Dataset
from omegaconf import OmegaConf

from nmt.data.augmentation import augment
from tests.commands import refused, run_composed
from tests.small import TINY

PAIRS = Dataset.from_dict(
    {
        "src": [f"The house no. {n}" for n in range(20)],
        "tgt": [f"Das Haus {n}" for n in range(20)],
        "alignment": ["0-0 1p1 3-2"] * 20,
    }
)


def augmented(share: float, seed: int = 1) -> Any:
    return augment(PAIRS, OmegaConf.create({"augment": {"two_sentences": share}}), seed)


def test_without_a_share_the_text_is_as_it_was():
    assert augmented(0.0) is augment(PAIRS, OmegaConf.create({}), 1) is PAIRS


def test_two_sentences_are_pairs_of_the_text_with_the_links_of_both():
    found = augmented(0.5)
    assert found[:20] == PAIRS[:]
    copies = found.select(range(20, 30))
    for row in copies:
        first, second = (int(number) for number in row["tgt"].split() if number.isdecimal())
        assert row["src"] == f"{PAIRS['src'][first]} {PAIRS['src'][second]}"
        assert row["tgt"] == f"Das Haus {first} Das Haus {second}"
        assert row["alignment"] == "0-0 1p1 3-2 4-3 5p4 7-5"
    assert len({each.split()[2] for each in copies["tgt"]}) == 10


def test_the_seed_draws_the_pairs():
    assert augmented(0.2)[20:] == augmented(0.2)[20:] != augmented(0.2, seed=2)[20:]


def test_training_learns_the_copies_too(tmp_path, caplog):
    caplog.set_level("INFO")
    given = [*TINY, f"run_dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path}"]
    ended = run_composed("train", *given, "trainer.max_steps=1", "data.augment.two_sentences=0.5")
    assert ended.status == 0, ended.err
    assert "50 copies beside 100 pairs" in caplog.text + ended.err


def test_a_stream_is_refused(tmp_path):
    files = ("data=files", f"data.path={tmp_path}", "data.src_lang=en", "data.tgt_lang=de")
    for command in ("train", "benchmark"):
        ended = run_composed(command, *files, "data.augment.two_sentences=0.1", "data.streaming=9")
        refused(ended, "data.augment.two_sentences=0.1", "data.streaming")
    refused(run_composed("train", *files, "data.augment.two_sentences=2"), "data.augment.two_sentences", "2")
