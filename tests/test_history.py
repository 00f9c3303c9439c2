"""The attention of a run's sentences at each validation: its file, and the page with its slider."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nmt.errors import UserError
from nmt.run import history as histories
from nmt.run.history import History
from tests.commands import run_composed
from tests.small import SOURCES, TARGETS
from tests.test_docs import BUILT_IN, TINY


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run with three validations, the last after it was resumed."""
    there = tmp_path_factory.mktemp("trained") / "run"
    small = [
        *BUILT_IN,
        *(each for each in TINY if "max_epochs" not in each),
        "callbacks.alignments.num_sentences=2",
    ]
    cache = f"data.cache_dir={there.parent / 'cache'}"
    ended = run_composed("train", *small, cache, "trainer.max_epochs=2", f"run_dir={there}")
    assert ended.status == 0, ended.err
    ended = run_composed("train", f"resume={there}", "trainer.max_epochs=3")
    assert ended.status == 0, ended.err
    return there


def history(*steps: int) -> History:
    """A history of two sentences, whose weights say the step."""
    N, pairs = len(steps), [(SOURCES[0], TARGETS[0]), (SOURCES[1], TARGETS[1])]
    weights = [
        np.stack([np.full((len(tgt.split()), len(src.split())), step / 100) for step in steps])
        for src, tgt in pairs
    ]
    source, target = (np.array(side) for side in zip(*pairs, strict=True))
    greedy = np.array([[f"a {step}", f"b {step}"] for step in steps])
    gold = [np.array([[0, 3]]), np.empty((0, 2), dtype=int)]
    return History(
        np.array(steps), np.array([5, 7]), source, target, greedy, np.full((N, 2), np.nan), weights, gold
    )


def test_a_history_grows_by_one_validation_and_forgets_what_a_resumed_run_repeats(tmp_path):
    history(4).save(tmp_path, "page")
    history(8).after(History.load(tmp_path)).save(tmp_path, "page")
    joined = history(8).after(history(12).after(History.load(tmp_path)))
    assert joined.steps.tolist() == [4, 8]
    assert joined.translations.tolist() == [["a 4", "b 4"], ["a 8", "b 8"]]
    assert [each[:, 0, 0].tolist() for each in joined.weights] == [[0.04, 0.08]] * 2
    assert (tmp_path / "index.html").read_text() == "page"
    with np.load(tmp_path / "history.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {"steps", "rows", "source", "target", "translations", "aer",
                               "weights_0", "weights_1", "gold_0", "gold_1"}  # fmt: skip
    assert history(9).after(replace(joined, rows=joined.rows + 1)).steps.tolist() == [9]
    first = joined.groups()[0]
    assert first.is_series
    assert [each.title for each in first.sentences] == ["step 4", "step 8"]
    assert first.sentences[1].gold == [(0, 3)]


def rewritten(file: Path, **changes: np.ndarray) -> None:
    with np.load(file) as stored:
        np.savez(file, **(dict(stored) | changes))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-30]), "zip"),
        (lambda file: file.write_bytes(b""), "data"),
        (lambda file: np.savez(file, steps=np.arange(2)), "rows"),
        (lambda file: rewritten(file, source=np.array([None, "a"])), "pickle"),
        (lambda file: rewritten(file, steps=np.array(["a", "b"])), "steps is <U1 [2]"),
        (lambda file: rewritten(file, weights_1=np.zeros((1, 2, 2))), "weights is float64 [1, 2, 2]"),
        (lambda file: rewritten(file, source=np.array(["a b", "c d"])), "weights for the text 'a b'"),
        (lambda file: rewritten(file, more=np.zeros(2000)), "bytes unpacked, more than 10,000"),
    ],
    ids=["cut", "empty", "missing", "objects", "type", "shape", "words", "size"],
)
def test_a_damaged_history_is_refused_in_one_line(tmp_path, monkeypatch, damage, named):
    monkeypatch.setattr(histories, "MOST_BYTES", 10_000)
    run_dir = tmp_path / "run"
    (run_dir / "alignments").mkdir(parents=True)
    history(4, 8).save(run_dir / "alignments", "page")
    History.load(run_dir / "alignments")
    damage(run_dir / "alignments/history.npz")
    with pytest.raises(UserError) as refusal:
        History.load(run_dir / "alignments")
    said = str(refusal.value)
    assert "history.npz" in said
    assert named in said
    assert "\n" not in said


@pytest.mark.slow
def test_a_run_remembers_its_validations_and_goes_on_after_it_was_resumed(trained):
    kept = History.load(trained / "alignments")
    assert kept.steps.tolist() == [2, 4, 6]
    assert kept.translations.shape == kept.aer.shape == (3, 2)
    for weights, source, target in zip(kept.weights, kept.source, kept.target, strict=True):
        assert weights.shape == (3, len(target.split()), len(source.split()))
    assert np.isfinite(kept.aer).all()
    page = (trained / "alignments/index.html").read_text("utf-8")
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    items = json.loads(data)["items"]
    assert [(each["isSeries"], len(each["sentences"])) for each in items] == [(True, 3)] * 2
    assert items[0]["sentences"][2]["title"].startswith("step 6 · AER")


@pytest.mark.slow
def test_the_runs_own_page_has_a_slider(opened, trained):
    with opened((trained / "alignments/index.html").as_uri()) as page:
        group = page.locator(".group").first
        slider, output = group.locator("input"), group.locator("output")
        assert output.inner_text().startswith("step 6 ")
        slider.fill("0")
        assert output.inner_text().startswith("step 2 ")
        assert group.locator("section .note").inner_text().startswith("greedy: ")
        assert group.locator("section").count() == 1
