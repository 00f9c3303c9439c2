"""The data of a run: its text stays the same when it goes on, and faults of the text are warned of."""

import logging
import unicodedata

import pytest
from datasets import Dataset

from nmt.data import grammar
from nmt.data.datamodule import TranslationDataModule
from nmt.data.encoding import count_shared
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError


def data_module(splits: dict[str, Dataset], tokenizer: Tokenizer) -> TranslationDataModule:
    return TranslationDataModule(
        splits, tokenizer, max_length=100, max_ratio=9.0, max_tokens=500, seed=1, guided=False
    )


def test_held_out_pairs_inside_training_are_counted():
    def rows(*pairs):
        return Dataset.from_dict({"src": [src for src, _ in pairs], "tgt": [tgt for _, tgt in pairs]})

    train = rows(("a", "b"), ("c", "d"), ("c", "d"), ("e f", "g"), ("", ""), (" ", "x"))
    held_out = rows(
        *(("a", "b"), ("c", "other"), ("c", "d"), ("c", "d"), ("e", "f g"), ("b", "a"), ("", ""), (" ", "x"))
    )
    assert count_shared(held_out, train) == 3
    assert count_shared(held_out.select([4, 1]), train) == 0
    assert count_shared(held_out.select([0]), train.select([1, 2])) == 0


def test_a_run_does_not_go_on_with_other_text(untrained):
    tokenizer = Tokenizer.load(untrained / "tokenizer")

    def data(num_train: int) -> TranslationDataModule:
        pairs = grammar.corpus(num_train=num_train, num_val=5, num_test=0, max_words=12, seed=1)
        splits = {
            split: Dataset.from_dict(
                {"src": [pair.en for pair in pairs[split]], "tgt": [pair.vi for pair in pairs[split]]}
            )
            for split in ("train", "val")
        }
        return data_module(splits, tokenizer)

    state = data(40).state_dict()
    data(40).load_state_dict(state)
    with pytest.raises(UserError, match="the training text is not the one that the run was trained on"):
        data(39).load_state_dict(state)


@pytest.mark.parametrize("side", ["src", "tgt", "alignment"])
def test_a_run_does_not_go_on_with_another_validation_set(side, untrained):
    tokenizer = Tokenizer.load(untrained / "tokenizer")

    def data(**changed: str) -> TranslationDataModule:
        train = Dataset.from_dict({"src": ["a b"], "tgt": ["c d"]})
        row = {"src": "e f", "tgt": "g h", "alignment": "0-0"} | changed
        return data_module({"train": train, "val": Dataset.from_list([row])}, tokenizer)

    state = data().state_dict()
    data().load_state_dict(state)
    with pytest.raises(UserError, match="the validation set is not the one that the run was scored on"):
        data(**{side: "0-1"}).load_state_dict(state)


def test_a_validation_set_inside_training_is_warned_of(untrained, caplog):
    pairs = grammar.corpus(num_train=40, num_val=10, num_test=0, max_words=12, seed=1)
    texts = {
        split: {"src": [pair.en for pair in rows], "tgt": [pair.vi for pair in rows]}
        for split, rows in pairs.items()
    }
    for side in ("src", "tgt"):
        texts["val"][side][:3] = texts["train"][side][:3]
    splits = {split: Dataset.from_dict(texts[split]) for split in ("train", "val")}
    data_module(splits, Tokenizer.load(untrained / "tokenizer"))
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.message.startswith("3 of 10 val pairs are training pairs too")


def test_references_that_the_vocabulary_rewrites_are_warned_of(untrained, caplog):
    decomposed = [unicodedata.normalize("NFD", each) for each in ("một ngôi nhà", "con mèo ngủ .")]
    splits = {
        "train": Dataset.from_dict({"src": ["a house"], "tgt": ["ngôi nhà"]}),
        "val": Dataset.from_dict({"src": ["one house", "the cat sleeps ."], "tgt": decomposed}),
    }
    data_module(splits, Tokenizer.load(untrained / "tokenizer"))
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.message.startswith("100 % of the validation references hold characters")


def test_unknown_words_of_a_vocabulary_of_words_are_named(caplog):
    rows = {"src": ["a big house", "a cat", "a zebra quagga"], "tgt": ["nhà to", "mèo", "ngựa vằn"]}
    splits = {name: Dataset.from_dict(rows) for name in ("train", "val")}
    options = {"model_type": "word", "joint": False, "character_coverage": 1.0}
    tokenizer = Tokenizer.train(["a big house", "a cat"] * 9, rows["tgt"], vocab_size=20, **options)
    data_module(splits, tokenizer)
    [said, _] = [record.message for record in caplog.records if "does not know" in record.message]
    assert "1 of 3 validation sources hold words" in said
    assert "(zebra, quagga)" in said
    assert said.endswith("as in zebra, quagga)")


def test_text_in_another_script_than_the_vocabulary_is_warned_of(untrained, caplog):
    splits = {
        "train": Dataset.from_dict({"src": ["猫は", "a house", "は猫"], "tgt": ["nhà", "ngôi жnhà", "con"]}),
        "val": Dataset.from_dict({"src": ["寝", "one house"], "tgt": ["ngôi nhà", "con"]}),
    }
    data_module(splits, Tokenizer.load(untrained / "tokenizer"))
    said = [
        record.message.partition(":")[0] for record in caplog.records if record.levelno == logging.WARNING
    ]
    hold = "hold characters that the vocabulary does not know"
    assert said == [
        f"1 of 2 validation sources {hold} (寝)",
        f"2 of 3 training sources {hold} (猫, は)",
        f"1 of 3 training targets {hold} (ж)",
    ]


def test_pairs_left_out_by_a_limit_are_warned_of(untrained, caplog):
    rows = [("a b", "c d")] * 8 + [("a b " * 99, "c d " * 99)] * 2 + [("a", "c " * 30)] * 2
    train = Dataset.from_dict({"src": [src for src, _ in rows], "tgt": [tgt for _, tgt in rows]})
    data_module({"train": train, "val": train.select([0])}, Tokenizer.load(untrained / "tokenizer"))
    for setting in ("data.max_length=100", "data.max_ratio=9.0"):
        assert f"17 % of the training pairs are left out by {setting}: raise it" in caplog.text


def test_text_without_a_pair_to_train_on_is_refused_before_it_is_aligned(untrained, monkeypatch):
    monkeypatch.delattr("nmt.data.encoding.add_alignment")
    train = Dataset.from_dict({"src": ["a " * 99] * 9, "tgt": ["c " * 99] * 9})
    tokenizer = Tokenizer.load(untrained / "tokenizer")
    limits = {"max_length": 10, "max_ratio": 4.0, "max_tokens": 500}
    with pytest.raises(UserError, match=r"no training pair is left of 9 .*data.max_length=10"):
        TranslationDataModule({"train": train, "val": train}, tokenizer, seed=1, guided=True, **limits)
