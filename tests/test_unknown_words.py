"""Unknown words of a translation become source words: through attention, by a plain reference, and in the commands."""

import os
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset

from nmt.data.tokenizer import Tokenizer
from nmt.decoding import DecodingSettings, Hypothesis, search
from nmt.errors import UserError
from nmt.run.run import Run
from nmt.run.unknown_words import dictionary_of, spell_unknown
from nmt.training.callbacks import validation_scores
from tests.commands import refused, run
from tests.small import SMALL, SOURCES, TARGETS, make_run, written

LINES = ["the cat sat on the mat", "a dog sat on a mat", "the dog saw the cat ."]
SOURCE = "the Zebra cat Quagga mat"


def train(model_type="word", **changes) -> Tokenizer:
    sizes = {"word": 9, "char": 16, "unigram": 24, "bpe": 20}
    options = {"joint": True, "vocab_size": sizes[model_type], "character_coverage": 1.0} | changes
    return Tokenizer.train(LINES * 5, LINES * 5, model_type=model_type, **options)


def texts(tokenizer, source, target, attended, dictionary=None) -> str:
    """The text of a target, each piece of which attends mostly to the source piece `attended` for it."""
    [src], [tgt] = tokenizer.encode_source([source]), tokenizer.encode_target([target])
    weights = torch.full((len(tgt), len(src)), 0.1)
    for row, place in enumerate(attended):
        weights[row, place] = 1
    found = Hypothesis(tgt[:-1], 0.0, 0.0, True, weights)
    return tokenizer.decoded_text(found.ids, spell_unknown(tokenizer, source, found, dictionary))


def test_an_unknown_word_becomes_the_most_attended_source_word():
    tokenizer = train()
    assert texts(tokenizer, SOURCE, "quux the zzz yyy", [3, 0, 1, 4], {}) == "Quagga the Zebra mat"
    dictionary = {"Zebra": "le zèbre", "the": "le"}
    assert texts(tokenizer, SOURCE, "quux the zzz yyy", [1, 0, 3, 0], dictionary) == "le zèbre the Quagga le"
    assert texts(tokenizer, SOURCE, "quux the zzz", [1, 0, 3], None) == " ⁇  the ⁇ "


def test_attention_to_the_end_alone_leaves_a_word_unknown():
    tokenizer = train()
    [src], [tgt] = tokenizer.encode_source(["cat"]), tokenizer.encode_target(["zzz"])
    found = Hypothesis(tgt[:-1], 0.0, 0.0, True, torch.tensor([[0.0, 1.0]] * 2))
    assert len(src) == 2
    assert spell_unknown(tokenizer, "cat", found, {}) == {}


def test_lower_case_text_takes_lower_case_words():
    tokenizer = train(lowercase=True)
    assert texts(tokenizer, SOURCE, "the quux", [0, 1], {}) == "the zebra"
    assert texts(tokenizer, SOURCE, "the quux", [0, 1], {"zebra": "zèbre"}) == "the zèbre"


@pytest.mark.parametrize("model_type", ["char", "unigram", "bpe"])
def test_a_word_with_an_unknown_character_is_replaced_whole(model_type):
    tokenizer = train(model_type)
    zebra = [tokenizer.source_side(SOURCE).groups.index(1)]
    assert texts(tokenizer, SOURCE, "the tŠe cat", zebra * 8, {}) == "the Zebra cat"
    assert texts(tokenizer, SOURCE, "Št the", zebra * 4, {"Zebra": "zèbre"}) == "zèbre the"


def test_in_text_without_spaces_a_character_is_a_word():
    lines = ["猫は寝る。", "犬は走る。", "猫は走る。"]
    options = {"model_type": "char", "joint": True, "vocab_size": 50, "character_coverage": 1.0}
    tokenizer = Tokenizer.train(lines * 5, lines * 5, **options)
    pieces = tokenizer.source_pieces(tokenizer.encode_source(["猫は鳥"])[0])
    assert pieces == ["▁", "猫", "は", "<unk>", "</s>"]
    assert texts(tokenizer, "猫は鳥", "犬は魚走る", [1, 1, 2, 3, 1, 1], {}) == "犬は鳥走る"


# In a run: the word models know neither "zebra" nor most of what the model writes


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    options = {"model_type": "word", "joint": False, "vocab_size": 10, "character_coverage": 1.0}
    return Tokenizer.train(SOURCES * 20, TARGETS * 20, **options)


UNTIED = ("model.tie_source=false", *SMALL)


@pytest.fixture
def unsure(words, tmp_path) -> Run:
    """A run whose random weights write many unknown words."""
    run = Run.load(make_run(tmp_path / "run", *UNTIED, tokenizer=words))
    run.translator.output.bias.data[words.unk_id] += 1.0
    return run


def by_loops(run: Run, line: str, settings: DecodingSettings) -> Iterator[str]:
    """Each word of a translation, an unknown one replaced by the source word with the largest weight."""
    [src] = run.tokenizer.encode_source([line])
    [[found]] = search(run.translator, torch.tensor([src]), settings, need_weights=True)
    for number, row in zip(found.ids, found.weights.tolist(), strict=False):
        of_words = row[: len(line.split())]  # each word is a piece
        assert len(src) == len(line.split()) + 1
        yield (
            line.split()[of_words.index(max(of_words))]
            if number == run.tokenizer.unk_id
            else run.tokenizer.target_pieces([number])[0].strip("▁")
        )


@pytest.mark.parametrize("beam_size", [1, 3])
def test_translations_are_those_of_plain_loops(unsure, beam_size):
    lines = ["a small zebra stands here", "quagga zebra", "the house"]
    settings = DecodingSettings(
        beam_size=beam_size, max_length=6, no_repeat_ngram_size=3, replace_unknown=True
    )
    plain = DecodingSettings(beam_size=beam_size, max_length=6, no_repeat_ngram_size=3)
    before, after = unsure.translate(lines, plain), unsure.translate(lines, settings)
    assert any("⁇" in each.text for each in before)
    assert [each.text for each in after] == [" ".join(by_loops(unsure, line, plain)) for line in lines]
    for one, other in zip(before, after, strict=True):
        assert (one.log_prob, one.score, one.links) == (other.log_prob, other.score, other.links)
        np.testing.assert_array_equal(one.weights, other.weights)
        assert other.target_words == other.text.split()
    [first, *_] = unsure.translate(lines, settings, need_weights=False)
    assert (first.text, first.weights, first.target_words) == (after[0].text, None, after[0].target_words)


def test_without_unknown_pieces_nothing_changes(words, tmp_path):
    found = Run.load(make_run(tmp_path / "run", *UNTIED, tokenizer=words))
    found.translator.output.bias.data[words.unk_id] -= 100
    lines, changed = [*SOURCES, "zebra quagga"], DecodingSettings(beam_size=2, replace_unknown=True)
    before = found.translate(lines, DecodingSettings(beam_size=2), num_best=2)
    after = found.translate(lines, changed, num_best=2)
    for one, other in zip(before, after, strict=True):
        assert (one.text, one.target_words) == (other.text, other.target_words)
        assert [each.text for each in one.others] == [each.text for each in other.others]


def test_a_dictionary_gives_the_first_translation_of_a_word(unsure, tmp_path):
    pairs = written(tmp_path / "pairs.tsv", "house\tnhà lớn", "the\t  cái ", "house\tother")
    settings = DecodingSettings(beam_size=1, replace_unknown=True, dictionary=str(pairs))
    assert dict(dictionary_of(settings, unsure.translator)) == {"house": "nhà lớn", "the": "cái"}
    [found] = unsure.translate(["the house"], settings)
    [copied] = unsure.translate(["the house"], DecodingSettings(beam_size=1, replace_unknown=True))
    assert found.text == copied.text.replace("house", "nhà lớn").replace("the", "cái") != copied.text
    assert found.target_words == found.text.split()


def test_a_dictionary_is_read_again_when_it_changes(unsure, tmp_path):
    pairs = written(tmp_path / "pairs.tsv", "a\tb")
    settings = DecodingSettings(beam_size=1, replace_unknown=True, dictionary=str(pairs))
    assert dictionary_of(settings, unsure.translator) == {"a": "b"}
    pairs.write_text("c\td\n", "utf-8")
    os.utime(pairs, ns=(1, 1))
    assert dictionary_of(settings, unsure.translator) == {"c": "d"}


@pytest.mark.parametrize("line", ["house", "house nhà", "a\tb\tc", "\tb", "a\t", ""])
def test_a_line_of_a_dictionary_that_is_no_pair_is_named(unsure, tmp_path, line):
    file = written(tmp_path / "pairs.tsv", "good\tgood", line)
    settings = DecodingSettings(replace_unknown=True, dictionary=str(file))
    with pytest.raises(UserError, match=r"pairs.tsv, line 2: .* a tab"):
        dictionary_of(settings, unsure.translator)


def test_replacing_needs_attention_a_file_and_the_setting(words, tmp_path):
    without = make_run(tmp_path / "none", *UNTIED, "attention=none", tokenizer=words)
    lines = written(tmp_path / "in", "the house")
    asked = (f"run={without}", f"input={lines}", f"output={tmp_path / 'out'}")
    refused(run("translate", *asked, "decoding.replace_unknown=true"), "replace_unknown=true", "attention")
    with pytest.raises(UserError, match="replace_unknown=true needs attention"):
        Run.load(without).translate(["the"], DecodingSettings(replace_unknown=True))
    with_attention = make_run(tmp_path / "some", *UNTIED, tokenizer=words)
    asked = (f"run={with_attention}", *asked[1:])
    absent = f"decoding.dictionary={tmp_path / 'absent'}"
    refused(run("translate", *asked, absent), "dictionary=", "no effect", "replace_unknown=true")
    refused(run("translate", *asked, absent, "decoding.replace_unknown=true"), "absent", "No such file")
    assert not (tmp_path / "out").exists()


def test_validation_scores_the_text_that_translating_writes(unsure, monkeypatch):
    settings = DecodingSettings(beam_size=1, length_alpha=0.0, max_length=4, replace_unknown=True)
    rows = Dataset.from_dict({"src": SOURCES[:2], "tgt": TARGETS[:2]})
    ids = [unsure.tokenizer.encode_source([line])[0] for line in SOURCES[:2]]
    batch = SimpleNamespace(src=unsure.pad(ids), indices=torch.arange(2))
    trainer = SimpleNamespace(
        datamodule=SimpleNamespace(tokenizer=unsure.tokenizer, val_text=rows),
        val_dataloaders=[batch],
        num_val_batches=[1],
        is_global_zero=False,
    )
    module = SimpleNamespace(
        translator=unsure.translator, decoding=settings, device="cpu", progress={}, log=lambda *_, **__: None
    )
    scored = []
    monkeypatch.setattr(
        validation_scores,
        "score_with",
        lambda _, outputs, *__, **___: scored.extend(outputs) or {"bleu": {"score": 0.0}},
    )
    validation_scores.ScoreValidation(num_samples=0).on_validation_epoch_end(trainer, module)
    assert scored == [each.text for each in unsure.translate(SOURCES[:2], settings)]
    assert "⁇" not in "".join(scored)
