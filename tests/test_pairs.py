"""All pairs of a corpus: pieces kept block by block, a sample, vocabularies that are trained once."""

import re
from pathlib import Path

import datasets
import numpy as np
import pytest
from omegaconf import OmegaConf

from nmt.data import encoding
from nmt.data.cache import cached_dataset
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.run.data import stored_data
from nmt.training.vocabulary import make_tokenizer

LINES = [(f"the number {n} is {n % 7} more", f"số {n} thì hơn {n % 7}") for n in range(30)]


@pytest.fixture
def corpus(tmp_path: Path) -> datasets.Dataset:
    return cached_dataset(lambda: LINES, key="0" * 64, split="train", cache_dir=tmp_path)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train()


def train() -> Tokenizer:
    src, tgt = zip(*LINES, strict=True)
    return Tokenizer.train(src, tgt, model_type="bpe", joint=True, vocab_size=80, character_coverage=1.0)


class Watched(Tokenizer):
    """Notes what it splits, and is cut off at a line. It pickles as a Tokenizer, and so has that one's hash."""

    seen: list[str]
    cut_at: str | None

    def encode_source(self, lines):
        if self.cut_at in lines:
            raise KeyboardInterrupt
        self.seen += lines
        return super().encode_source(lines)


def watched(tokenizer: Tokenizer, cut_at: str | None = None) -> Watched:
    each = Watched(*tokenizer.__reduce__()[1])
    each.seen, each.cut_at = [], cut_at
    return each


def test_pieces_do_not_depend_on_the_blocks(corpus, tokenizer, monkeypatch):
    whole = encoding.encode(corpus, tokenizer)[:]
    monkeypatch.setattr(encoding, "BLOCK", 7)
    assert encoding.encode(corpus, tokenizer)[:] == whole
    assert list(whole["index"]) == list(range(30))
    assert list(whole["src_ids"]) == tokenizer.encode_source([src for src, _ in LINES])
    assert list(whole["tgt_ids"]) == tokenizer.encode_target([tgt for _, tgt in LINES])


def test_work_that_was_cut_off_goes_on_with_its_block(corpus, tokenizer, monkeypatch):
    monkeypatch.setattr(encoding, "BLOCK", 10)
    with pytest.raises(KeyboardInterrupt):
        encoding.encode(corpus, watched(tokenizer, cut_at=LINES[25][0]))
    again = watched(tokenizer)
    rows = encoding.encode(corpus, again)
    assert again.seen == [src for src, _ in LINES[20:]]
    assert list(rows["src_ids"]) == tokenizer.encode_source([src for src, _ in LINES])


def test_lengths_are_those_of_the_rows(corpus, tokenizer):
    rows = encoding.encode(corpus, tokenizer)
    for some in (rows, rows.shuffle(seed=1), rows.select(range(3, 9)), rows.select([])):
        for side, name in zip(encoding.lengths(some), ("src_ids", "tgt_ids"), strict=True):
            assert side.dtype == np.int32
            assert side.tolist() == [len(row) for row in some[name]]


def test_a_sample_reaches_from_the_first_pair_to_the_last(corpus):
    assert encoding.sample_rows(corpus, 30) is corpus
    assert encoding.sample_rows(corpus, 1000) is corpus
    some = list(encoding.texts(encoding.sample_rows(corpus, 4), "src"))
    assert some == [LINES[n][0] for n in (0, 10, 19, 29)]


SETTINGS = {
    "model": None,
    "model_type": "bpe",
    "joint": True,
    "vocab_size": 80,
    "character_coverage": 1.0,
    "max_pairs": 1000,
}


def settings(tmp_path: Path, **changed):
    return OmegaConf.create({"cache_dir": str(tmp_path), "tokenizer": SETTINGS | changed})


def test_a_vocabulary_is_trained_once(corpus, tmp_path, monkeypatch):
    first = make_tokenizer(settings(tmp_path), corpus)
    monkeypatch.setattr(Tokenizer, "train", None)
    assert make_tokenizer(settings(tmp_path), corpus).__reduce__() == first.__reduce__()


@pytest.mark.parametrize(
    "changed", [{"vocab_size": 81}, {"joint": False, "vocab_size": 50}, {"max_pairs": 29}]
)
def test_other_settings_or_pairs_give_another_vocabulary(corpus, tmp_path, changed):
    first = make_tokenizer(settings(tmp_path), corpus)
    second = make_tokenizer(settings(tmp_path, **changed), corpus)
    assert second.__reduce__() != first.__reduce__()
    assert make_tokenizer(settings(tmp_path, **changed), corpus).__reduce__() == second.__reduce__()


@pytest.mark.parametrize(("joint", "sizes"), [(True, r"\d+"), (False, r"\d+ and \d+")])
def test_a_vocabulary_that_is_smaller_than_its_bound_is_noticed(corpus, tmp_path, caplog, joint, sizes):
    caplog.set_level("INFO")
    changed = settings(tmp_path, vocab_size=4000, joint=joint)
    first = make_tokenizer(changed, corpus)
    assert make_tokenizer(changed, corpus).__reduce__() == first.__reduce__()  # from the cache
    line = rf"the text gives {sizes} pieces, fewer than data.tokenizer.vocab_size=4000"
    assert [bool(re.fullmatch(line, each)) for each in caplog.messages] == [True, True]


def test_a_damaged_vocabulary_is_trained_again(corpus, tmp_path):
    first = make_tokenizer(settings(tmp_path), corpus)
    [model] = tmp_path.glob("tokenizer-*/joint.model")
    model.write_bytes(model.read_bytes()[:100])
    assert make_tokenizer(settings(tmp_path), corpus).__reduce__() == first.__reduce__()


def test_a_stored_run_does_not_choose_its_cache(tmp_path):
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    here.mkdir()
    for place in (elsewhere, here):
        stored = stored_data(OmegaConf.create({"reader": "x", "cache_dir": str(place)}))
        assert stored.cache_dir == "data/cache"
    with pytest.raises(UserError, match="data=files"):
        stored_data(OmegaConf.create({"reader": None}))
