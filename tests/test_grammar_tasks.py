"""Classification and summarisation from the built-in grammar: what they ask for is right, and both runs go through."""

import json
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import DictConfig

from nmt.data import grammar
from nmt.data.corpus import read_grammar
from nmt.data.grammar import Pair, lexicon, rule, word
from nmt.errors import UserError
from nmt.training.train import silence_warnings
from nmt.training.train import train as run_training

ROOT = Path(__file__).resolve().parents[1]
SMALL = {"num_train": 60, "num_val": 10, "num_test": 20, "min_words": 3, "max_words": 20, "seed": 2}


@pytest.fixture(scope="module")
def sample() -> list[Pair]:
    rng = random.Random(5)
    return [grammar.sentence(rng, max_words=30) for _ in range(8000)]


# --------------------------------------------------------------------------------------------- core and kind


def test_the_core_leaves_out_what_brackets_hold_at_any_depth():
    relative = rule("who/1 V", "mà/1 V", V=word("sleeps", "ngủ")._replace(kind="present"))
    who = rule("the N [R]", "N R", N=word("teacher", "giáo viên"), R=relative)
    late = rule(
        "[T ,/1] S V", "T ,/1 S V", S=who, V=word("left", "đã đi")._replace(kind="past"), T=word("now", "giờ")
    )
    assert late.en == ("now", ",", "the", "teacher", "who", "sleeps", "left")
    assert late.core == ("the", "teacher", "left")
    assert late.kind == "past", "the kind of what brackets hold is not the sentence's"


ADVERBIALS = {
    side.replace("/1", "").replace("/2", "").replace("/3", "")
    for times in lexicon.TIMES.values()
    for side, _ in times
}
ADVERBIALS |= set(lexicon.MANNERS)
OPENERS = "when|if|because|although|before|after|while"


def cut(text: str) -> str | None:
    """The core by cutting text; None where that could not tell places, relative clauses or what `and` joins."""
    if re.search(r"(?<!,) and | (who|that|in|at|near|behind) ", text):
        return None
    if text.endswith(" ."):
        text = re.sub(rf"^({OPENERS}) .*? , ", "", text)
        text = re.sub(rf" (, (and|but|so)|{OPENERS}) .* \.$", " .", text)
    for adverbial in ADVERBIALS:
        text = re.sub(rf"^{adverbial} , | {adverbial}(?= [.?]$)", "", text)
    for adverbial in ADVERBIALS:  # a manner before a time
        text = re.sub(rf" {adverbial}(?= [.?]$)", "", text)
    return text


def test_the_core_is_what_cutting_the_text_gives_wherever_that_can_tell(sample):
    told = [(pair, core) for pair in sample if (core := cut(pair.en)) is not None]
    assert sum(core != pair.en for pair, core in told) > 800
    assert [(pair.en, pair.core, core) for pair, core in told if pair.core != core] == []


def test_a_place_is_left_out_unless_the_verb_asks_for_it(sample):
    simple = [pair for pair in sample if not re.search(rf",| (and|that|who|{OPENERS}) |[?]", pair.en)]
    told = Counter()
    for pair in simple:
        if found := re.match(
            r"(\w+ (?:slept|rested|walked|laughed|cried|sat|stood)) (?:in|at|near|behind) ", pair.en
        ):
            assert pair.core == f"{found[1]} ."
            told["left out"] += 1
        elif found := re.match(r"\w+ (?:lived in|went to|moved to) \w+", pair.en):
            assert pair.core.startswith(found[0])
            told["kept"] += 1
    assert min(told["left out"], told["kept"]) >= 5, told


def test_a_core_is_a_sentence_of_its_own_without_relative_clauses(sample):
    known = {pair.en: pair for pair in sample}
    again = [known[pair.core] for pair in sample if pair.core != pair.en and pair.core in known]
    assert len(again) > 100
    assert all(pair.core == pair.en for pair in again)
    for pair in sample:
        words = iter(pair.en.split())
        assert all(each in words for each in pair.core.split()), "its words in their order"
        assert pair.core[-1] == pair.en[-1]
        assert " who " not in pair.core
        if pair.core in known:
            assert known[pair.core].kind == pair.kind


def kind_by_translation(vi: str) -> str:
    """What a sentence of one clause does, by the particles of its Vietnamese."""
    words = vi.split()
    if words[-1] == "?":
        return "yes-no question" if words[-2] in ("không", "chưa") else "open question"
    if words[0] in ("xin", "đừng"):
        return {"xin": "request", "đừng": "prohibition"}[words[0]]
    if "chưa" in words:
        return "negative perfect"
    if words[-2] == "rồi" or "vừa mới" in vi:
        return "perfect"
    negative = "negative " if "không" in words else ""
    if "không được" in vi or {"thể", "nên"} & set(words) or ("phải" in words and "không phải là" not in vi):
        return negative + "modal"
    return negative + {"đã": "past", "sẽ": "future"}.get(
        next((each for each in words if each in ("đã", "sẽ")), ""), "present"
    )


def test_the_kind_is_what_the_particles_of_the_translation_say(sample):
    simple = [
        pair for pair in sample if pair.core == pair.en and "rằng" not in pair.vi and "mà" not in pair.vi
    ]
    assert len(simple) > 2000
    assert [
        (pair, kind_by_translation(pair.vi)) for pair in simple if kind_by_translation(pair.vi) != pair.kind
    ] == []


def test_no_kind_has_half_of_the_sentences_and_each_occurs(sample):
    shares = {kind: count / len(sample) for kind, count in Counter(pair.kind for pair in sample).items()}
    assert len(shares) == 14
    assert max(shares.values()) < 0.35
    assert min(shares.values()) > 0.01


# ------------------------------------------------------------------------------------------------ the data


def columns(cache: Path, **changes: Any) -> dict[str, list[tuple[str, str]]]:
    settings = {"src_lang": "en", "tgt_lang": "kind", **SMALL, **changes}
    splits = read_grammar(**settings, cache_dir=cache)
    return {split: list(zip(rows["src"], rows["tgt"], strict=True)) for split, rows in splits.items()}


@pytest.mark.parametrize("src_lang", ["en", "vi"])
@pytest.mark.parametrize("tgt_lang", ["core", "kind"])
def test_rows_are_those_of_the_corpus_and_no_source_occurs_twice(tmp_path, src_lang, tgt_lang):
    found = columns(tmp_path, src_lang=src_lang, tgt_lang=tgt_lang)
    assert {split: len(rows) for split, rows in found.items()} == {"train": 60, "val": 10, "test": 20}
    expected = grammar.corpus(**SMALL)
    for split, rows in found.items():
        assert rows == [(getattr(pair, src_lang), getattr(pair, tgt_lang)) for pair in expected[split]]
    sources = [src for rows in found.values() for src, _ in rows]
    assert len(set(sources)) == len(sources)
    assert columns(tmp_path / "elsewhere", src_lang=src_lang, tgt_lang=tgt_lang) == found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tgt_lang": "fr"}, r"data\.tgt_lang=fr: .*core and kind"),
        ({"src_lang": "kind"}, r"data\.src_lang=kind: .*en and vi"),
        ({"min_words": 30}, "min_words=30 is more than max_words=20"),
    ],
)
def test_another_task_or_length_is_refused(tmp_path, change, words):
    with pytest.raises(UserError, match=words):
        columns(tmp_path, **change)


# ------------------------------------------------------------------------------------------------- the runs


def config(run_dir: Path, experiment: str) -> DictConfig:
    overrides = [
        f"experiment={experiment}",
        f"run_dir={run_dir}",
        f"name={experiment}",
        f"data.cache_dir={run_dir / 'cache'}",
        "data.num_train=200",
        "data.num_val=8",
        "data.num_test=8",
        "data.tokenizer.vocab_size=200",
        "model.size=16",
        "~callbacks.alignments",
        "trainer=cpu",
        "trainer.max_epochs=1",
        "trainer.log_every_n_steps=2",
        "trainer.enable_progress_bar=false",
    ]
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        return hydra.compose("train", overrides)


def train(cfg: DictConfig) -> dict[str, Any]:
    silence_warnings()
    return run_training(cfg)


@pytest.mark.parametrize(
    ("experiment", "metrics"),
    [
        ("classification", {"exact_match", "macro_f1"}),
        ("summarization", {"rouge1", "rouge2", "rougeL", "bleu", "chrf", "ter"}),
    ],
)
def test_the_experiment_runs_from_text_to_its_scores(tmp_path, experiment, metrics):
    train(config(tmp_path, experiment))
    scores = json.loads((tmp_path / "metrics.json").read_text("utf-8"))
    assert {
        name for name in scores if isinstance(scores[name], dict) and "signature" in scores[name]
    } == metrics
    assert scores["num_sentences"] == 8
    assert (tmp_path / "checkpoints" / "best.ckpt").exists()


def test_without_rouge_score_the_run_ends_before_it_trains(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[summarization\]'"):
        train(config(tmp_path, "summarization"))
    assert not (tmp_path / "checkpoints").exists()
