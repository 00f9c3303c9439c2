"""More training text of the same pairs: which translations are added, and that it is trained on."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from nmt.commands import diversify as command
from tests.commands import compose, refused, run
from tests.test_trackers import TINY

TRAIN = [("ein Hund", "a dog"), ("eine Katze", "a cat"), ("ein Hund", "a dog"), ("nichts", "nothing")]
VAL = [("ja", "yes")]


def stand_in(name, languages, translations):
    return SimpleNamespace(
        name=name,
        directory=Path(name),
        languages=languages,
        translator=None,
        config=SimpleNamespace(data=None),
        translate=lambda lines, *_, **__: [SimpleNamespace(text=translations[line]) for line in lines],
    )


def rows_of(file):
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@pytest.fixture
def runs(monkeypatch):
    found = {
        "ahead": stand_in(
            "ahead", ("de", "en"), {"ein Hund": "one dog", "eine Katze": "a cat", "nichts": ""}
        ),
        "back": stand_in(
            "back", ("en", "de"), {"a dog": "der Hund", "a cat": "eine Katze", "nothing": "nichts da"}
        ),
        "other": stand_in("other", ("de", "fr"), {}),
    }
    splits = {
        "train": {"src": [src for src, _ in TRAIN], "tgt": [tgt for _, tgt in TRAIN]},
        "val": [{"src": src, "tgt": tgt, "alignment": "0-0"} for src, tgt in VAL],
    }
    monkeypatch.setattr(command.Run, "load", lambda path, **_: found[path])
    monkeypatch.setattr(command, "read_whole", lambda *_, **__: splits)
    monkeypatch.setattr(command, "stored_data", lambda data: data)
    monkeypatch.setattr(command, "check_decoding", lambda *_: None)
    return found


def test_each_run_adds_the_pairs_of_its_translations_that_are_new(runs, tmp_path, capsys):
    command.diversify(compose("diversify", "runs=[ahead,back]", f"output={tmp_path / 'more'}"))
    pairs = [(row["de"], row["en"]) for row in rows_of(tmp_path / "more/train.jsonl")]
    original = [TRAIN[0], TRAIN[1], TRAIN[3]]  # each once
    forward = [("ein Hund", "one dog")]  # of the others one is there already, and one is empty
    backward = [("der Hund", "a dog"), ("nichts da", "nothing")]
    assert pairs == original + forward + backward
    assert rows_of(tmp_path / "more/val.jsonl") == [{"de": "ja", "en": "yes", "alignment": "0-0"}]
    assert sorted(file.name for file in (tmp_path / "more").iterdir()) == ["train.jsonl", "val.jsonl"]
    assert "back: 2 new pairs of 4 translations" in capsys.readouterr().out


def test_the_first_run_says_the_direction(runs, tmp_path):
    runs["back"].translate, runs["ahead"].translate = runs["ahead"].translate, runs["back"].translate
    runs["back"].languages, runs["ahead"].languages = ("de", "en"), ("en", "de")
    command.diversify(compose("diversify", "runs=[back,ahead]", f"output={tmp_path / 'more'}"))
    assert len(rows_of(tmp_path / "more/train.jsonl")) == 6


def test_a_run_of_other_languages_is_refused(runs, tmp_path):
    with pytest.raises(
        command.UserError, match=r"^other does not translate between de and en, as ahead does$"
    ):
        command.diversify(compose("diversify", "runs=[ahead,other]", f"output={tmp_path / 'more'}"))
    assert not (tmp_path / "more").exists()


def test_what_is_missing_or_in_the_way_is_refused_in_one_line(tmp_path):
    refused(run("diversify", f"runs=[{tmp_path}/none]", f"output={tmp_path}/new"), "no such run directory")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    refused(run("diversify", f"runs=[{tmp_path}]", f"output={tmp_path}/full"), "is not empty")


@pytest.mark.slow
def test_real_runs_of_both_directions_make_text_that_is_trained_on(tmp_path):
    shared = [*TINY, f"data.cache_dir={tmp_path}/cache"]
    ways = {"ahead": ("en", "vi"), "back": ("vi", "en")}
    for name, (src, tgt) in ways.items():
        ended = run(
            "train", *shared, f"data.src_lang={src}", f"data.tgt_lang={tgt}", f"run_dir={tmp_path / name}"
        )
        assert ended.status == 0, ended.err
    ended = run("diversify", f"runs=[{tmp_path}/ahead,{tmp_path}/back]", f"output={tmp_path}/more")
    assert ended.status == 0, ended.err
    num_pairs = len(rows_of(tmp_path / "more/train.jsonl"))
    assert num_pairs > len(rows_of(tmp_path / "more/val.jsonl"))
    files = ["data=files", f"data.path={tmp_path}/more", "data.src_lang=en", "data.tgt_lang=vi"]
    of_grammar = ("num_train", "num_val", "num_test", "max_words")
    given = [each for each in shared if not any(name in each for name in of_grammar)]
    ended = run("train", *given, *files, f"run_dir={tmp_path / 'trained'}")
    assert ended.status == 0, ended.err
    assert "aer" in json.loads((tmp_path / "trained/metrics.json").read_text("utf-8"))
