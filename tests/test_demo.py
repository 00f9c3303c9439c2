"""The playground: held attention, other words, runs beside each other, attention over time; in a real browser too."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from nmt import Run
from nmt.attention import AdditiveAttention, HierarchicalAttention, SentenceAttention, holding
from nmt.attention.masks import masked_softmax
from nmt.commands import checks
from nmt.decoding import DecodingSettings
from nmt.demo import views
from nmt.demo.session import END, Choices, Explorer
from nmt.errors import UserError
from nmt.models.base import Translator
from nmt.run import history as histories
from nmt.run.building import build_translator
from nmt.run.history import History
from tests import test_documents as documents
from tests.commands import CONFIGS, refused, run, run_composed
from tests.test_align import SMALL, SOURCES, TARGETS, compose, make_run
from tests.test_docs import BUILT_IN, TINY

LINE = "here stands the small house"
HTML = "<b>house</b> & <script>document.title = 'broken'</script>"
RIGHT_TO_LEFT = "הבית הקטן עומד כאן"
DOCUMENTS = ("hierarchical", "sentences")
ATTENTIONS = sorted(
    file.stem for file in (CONFIGS / "attention").glob("*.yaml") if file.stem not in ("none", *DOCUMENTS)
)
TRANSFORMER = ["model=transformer", "model.size=8", "encoder.feedforward_size=8", "decoder.feedforward_size=8",
               "encoder.num_heads=2", "decoder.num_heads=2", "decoder.num_layers=2"]  # fmt: skip
SHORT = DecodingSettings(beam_size=3, max_length_ratio=1, max_length_extra=3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Run]:
    """Runs with random weights: several heads in a recurrent decoder, and a Transformer of two layers."""
    ways = {"gru": ["attention=multi_head", *SMALL], "transformer": TRANSFORMER}
    return {
        name: Run.load(make_run(tmp_path_factory.mktemp(name), *way), device="cpu")
        for name, way in ways.items()
    }


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
    ended = run("train", *small, cache, "trainer.max_epochs=2", f"run_dir={there}")
    assert ended.status == 0, ended.err
    ended = run("train", f"resume={there}", "trainer.max_epochs=3")
    assert ended.status == 0, ended.err
    return there


def inputs(model: Translator, length: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A source of 5 positions, its mask, and a target [1, T] that begins with BOS."""
    src = torch.tensor([[7, 8, 9, 10, model.eos_id]])
    return src, torch.ones_like(src, dtype=torch.bool), torch.tensor([[model.bos_id, *range(7, 6 + length)]])


def translator(runs: dict[str, Run], *choices: str) -> Any:
    model = OmegaConf.create(OmegaConf.to_container(compose("train", *choices).model, resolve=True))
    return build_translator(model, runs["gru"].tokenizer).eval()


WAYS = [
    *((f"attention={name}", *SMALL) for name in ATTENTIONS),
    *(("attention=bahdanau", f"wiring={name}", *SMALL) for name in ("update_then_attend", "conditional")),
    ("attention=luong_dot", "wiring.input_feeding=true", *SMALL),
    tuple(TRANSFORMER),
]


@torch.inference_mode()
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way[:2]).replace("encoder.size=8", ""))
def test_any_attention_can_be_held_and_the_rest_is_left_alone(way, runs):
    model = translator(runs, *way)
    src, mask, tgt = inputs(model)
    memory, attention = model.encode(src, mask), model.decoder.cross_attentions[-1]
    free = model.forward(memory, tgt, need_weights=True)
    with holding(attention, {}):
        assert torch.equal(model.forward(memory, tgt).logits, model.forward(memory, tgt).logits)
        assert torch.equal(model.forward(memory, tgt, need_weights=True).logits, free.logits)
    row = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    with holding(attention, {3: row}):
        held = model.forward(memory, tgt, need_weights=True)
        cross = model.attentions(src, mask, tgt).cross[0]  # [L, K, T, S]
        stepped, state = [], model.init_state(memory)
        for piece in tgt.T:
            logits, state, _ = model.step(piece, state, memory)
            stepped.append(logits)
    assert torch.equal(held.logits[:, :3], free.logits[:, :3])
    assert torch.equal(cross[-1, :, 3], row.expand_as(cross[-1, :, 3]))  # every head of the layer
    assert not torch.equal(held.logits[:, 3], free.logits[:, 3])
    torch.testing.assert_close(torch.stack(stepped, dim=1), held.logits, atol=1e-5, rtol=1e-4)
    assert torch.equal(model.forward(memory, tgt).logits, model.forward(memory, tgt).logits)


@torch.inference_mode()
def test_the_context_of_a_held_position_is_the_mean_of_its_states(runs):
    model = translator(runs, "attention=local_p", *SMALL)
    src, mask, _ = inputs(model)
    memory, attention = model.encode(src, mask), model.decoder.attention
    query, row = torch.randn(1, 2, 8), torch.tensor([0.5, 0.0, 0.0, 0.0, 0.5])
    with holding(attention, {1: row}):
        found = attention(
            query, memory.keys, memory.states, mask, positions=torch.tensor([[0, 1]]), past=None
        )
    expected = (memory.states[0, 0] + memory.states[0, 4]) / 2
    torch.testing.assert_close(found.context[0, 1], expected)


@torch.inference_mode()
@pytest.mark.parametrize("kind", [HierarchicalAttention, SentenceAttention])
def test_attention_to_documents_can_be_held(kind):
    content = partial(AdditiveAttention, size=4, temperature=1.0, normalizer=masked_softmax)
    attention = kind(query_size=documents.SIZE, key_size=documents.SIZE, content=content).double()
    sizes, encoder = [[3, 2]], documents.make_encoder()
    rows = [documents.ids_of(each) for each in sizes]
    _, free = documents.attended(attention, encoder, rows)
    row = torch.zeros(free.weights.size(-1), dtype=torch.double)
    row[4] = 1  # the first sentence has three words and the sign that ends it
    with holding(attention, {1: row}):
        _, held = documents.attended(attention, encoder, rows)
    assert torch.equal(held.weights[0, 1], row)
    assert torch.equal(held.weights[0, [0, 2]], free.weights[0, [0, 2]])
    encoded = encoder(*documents.batch_of(rows))
    expected = encoded.states[0, 4] if kind is HierarchicalAttention else encoded.document.states[0, 1]
    torch.testing.assert_close(held.context[0, 1], expected)


@torch.inference_mode()
def test_a_layer_alone_is_held_in_a_transformer(runs):
    model = translator(runs, *TRANSFORMER)
    src, mask, tgt = inputs(model)
    free = model.attentions(src, mask, tgt).cross[0]
    with holding(model.decoder.cross_attentions[1], {2: torch.eye(5)[0]}):
        held = model.attentions(src, mask, tgt).cross[0]
    assert torch.equal(held[0], free[0])
    assert torch.equal(held[1, :, 2], torch.eye(5)[[0, 0]])


@pytest.mark.parametrize("name", ["gru", "transformer"])
def test_what_is_explored_is_what_the_run_translates(name, runs):
    explorer = Explorer(runs[name], SHORT)
    found = explorer.explore(LINE)
    expected = runs[name].translate([LINE], SHORT, num_best=3)[0]
    assert found.best.text == expected.text
    assert [each.text for each in found.best.others] == [each.text for each in expected.others]
    assert found.labels[-1] == END
    np.testing.assert_allclose(found.sentence().weights, expected.weights, atol=1e-5)
    T, S = len(found.ids), len(found.source.groups)
    assert found.sentence("pieces", 0, 1).weights.shape == (T, S)
    assert len(found.sentence("pieces").source) == S
    *_, greedy = explorer.stream(LINE)
    assert greedy == runs[name].translate([LINE], SHORT.greedy)[0].text


@pytest.mark.parametrize("name", ["gru", "transformer"])
def test_alternatives_are_the_models_own_and_can_be_taken(name, runs):
    explorer = Explorer(runs[name], SHORT)
    found = explorer.explore(LINE)
    chances = [
        next((each.probability for each in row if each.piece == piece), None)
        for piece, row in zip(found.ids, found.alternatives, strict=True)
    ]
    assert all(
        len(row) == 8 and sum(each.probability for each in row) <= 1 + 1e-5 for row in found.alternatives
    )
    if None not in chances:
        assert np.log(chances).sum() == pytest.approx(found.best.log_prob, abs=1e-3)
    other = next(each for each in found.alternatives[2] if each.piece not in (found.ids[2], found.ids[-1]))
    prefix = (*found.ids[:2], other.piece)
    taken = explorer.explore(LINE, Choices(prefix))
    assert taken.ids[:3] == prefix
    ended = explorer.explore(LINE, Choices((*found.ids[:2], found.ids[-1])))
    assert ended.ids == (*found.ids[:2], found.ids[-1])
    assert "".join(explorer.stream(LINE, Choices(prefix)))


@pytest.mark.parametrize("name", ["gru", "transformer"])
def test_holding_costs_what_force_decoding_says(name, runs):
    explorer = Explorer(runs[name], SHORT)
    choices = Choices(pins={1: explorer.explore(LINE).pieces_of([2, 3])}, layer=explorer.num_layers - 1)
    held, free = explorer.explore(LINE, choices), explorer.free(LINE, choices)
    assert free.best.text == explorer.explore(LINE).best.text
    assert held.weights is not None
    row = held.weights[-1, :, 1]
    np.testing.assert_allclose(row[:, list(choices.pins[1])], 1 / len(choices.pins[1]))
    np.testing.assert_allclose(row.sum(axis=-1), 1, rtol=1e-6)
    chosen = [
        {a.piece: a.probability for a in each}.get(i)
        for i, each in zip(held.ids, held.alternatives, strict=True)
    ]
    if None not in chosen:
        assert np.log(chosen).sum() == pytest.approx(held.best.log_prob, abs=1e-3)
    said = views.message(explorer, LINE, choices, held)
    assert f"costs {free.best.log_prob - held.best.log_prob:.2f} nats" in said
    assert ("layer" in said) == (name == "transformer")


def test_any_line_is_shown(runs):
    explorer = Explorer(runs["gru"], SHORT)
    empty = explorer.explore("  ")
    assert (empty.best.text, views.n_best(empty), list(explorer.stream(""))) == ("", "", [])
    assert "<button" not in views.attention(explorer, empty, "pieces", None, None)
    for line in (HTML, RIGHT_TO_LEFT, "house"):
        found = explorer.explore(line)
        shown = views.attention(explorer, found, "words", 0, 1) + views.n_best(found)
        assert "<script>" not in shown.replace("&lt;", "<<")
        assert found.sentence().source == line.split()
    assert explorer.explore(HTML).source_labels[0].startswith("▁")
    long = explorer.explore(" ".join(["house"] * 600))
    assert long.best.text
    assert long.position("words", 0) is None
    assert "in parts" in views.message(explorer, "house", Choices(), long)


def test_characters_that_the_vocabulary_does_not_know_are_named(runs):
    explorer = Explorer(runs["gru"], SHORT)
    for line in ("猫は寝ている。", "猫" + " house" * 600):
        said = views.message(explorer, line, Choices(), explorer.explore(line))
        assert "characters that the vocabulary does not know (猫" in said
        assert ("in parts" in said) == ("house" in line)


def test_a_line_in_parts_has_no_weights_of_a_layer_to_show(runs):
    explorer = Explorer(runs["transformer"], SHORT)
    long = explorer.explore(" ".join(["house"] * 600))
    assert "layer 1" not in views.attention(explorer, long, "words", 1, 0)
    assert "layer 1" in views.attention(explorer, explorer.explore(LINE), "words", 1, 0)


def test_without_attention_the_words_that_are_drawn_can_be_chosen(tmp_path):
    explorer = Explorer(Run.load(make_run(tmp_path, "attention=none", *SMALL), device="cpu"), SHORT)
    found = explorer.explore(LINE)
    number = len(found.sentence("pieces").target) - 1
    assert found.position("pieces", number) == found.target.groups.index(number)


def test_what_a_person_is_told_in_the_browser_is_no_traceback_on_the_terminal(runs):
    gradio = pytest.importorskip("gradio", reason="no gradio: pip install -e '.[demo]'")
    from nmt.demo.app import Playground, Situation

    with pytest.raises(gradio.Error, match="Click a word") as told:
        Playground([Explorer(runs["gru"], SHORT)])._holding(Situation(), [], "mean")
    assert not told.value.print_exception
    explorer = Explorer(runs["gru"], SHORT)
    longer = Situation(0, LINE, Choices(tuple(range(5, 5 + 50))))
    with pytest.raises(gradio.Error, match="has 50 pieces") as told:
        list(Playground([explorer])._translate(gradio.State(), longer, ["words", "mean", "mean"]))
    assert not told.value.print_exception


def test_runs_stand_beside_each_other_with_a_forced_target(runs, tmp_path):
    explorers = [Explorer(each, SHORT) for each in runs.values()]
    forced = explorers[0].force(LINE, "một ngôi nhà")
    assert forced.best.text == "một ngôi nhà"
    np.testing.assert_allclose(
        forced.sentence().weights, runs["gru"].align([LINE], ["một ngôi nhà"])[0], atol=1e-6
    )
    shown = views.beside(explorers, LINE, "một ngôi nhà")
    assert all(each.run.name in shown for each in explorers)
    assert shown.count("một ngôi nhà") == 2
    assert "log p" in views.beside(explorers, LINE, "")
    (tmp_path / "lines").write_text(f"{LINE}\n\n{HTML}\n", "utf-8")
    ours, other = (each.directory for each in runs.values())
    settings = [f"run={ours}", f"input={tmp_path / 'lines'}", f"beside={other}"]
    ended = run_composed(
        "translate", *settings, f"page={tmp_path / 'page.html'}", f"output={tmp_path / 'out'}"
    )
    assert ended.status == 0, ended.err
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count('class="group beside"') == 3
    assert page.count("<section") == 6
    assert "<b>" not in page
    refused(run_composed("translate", *settings), "beside=", "has no effect without page=FILE")
    ended = run_composed(
        "translate", f"run=[{ours},{ours}]", *settings[1:2], f"page={tmp_path / 'both.html'}"
    )
    assert ended.status == 0, ended.err
    page = (tmp_path / "both.html").read_text("utf-8")
    assert page.count("<section") == 9
    assert page.count(">ensemble, log p") == 3


def test_the_demo_says_what_it_lacks(runs, monkeypatch):
    monkeypatch.setattr(checks, "find_spec", lambda name: name)
    refused(run_composed("demo", "run=[nowhere]"), "nowhere: no such run directory")
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    refused(run_composed("demo", f"run={runs['gru'].directory}"), "pip install -e '.[demo]'")


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
    explorer = SimpleNamespace(run=SimpleNamespace(name="a run", directory=run_dir))
    assert views.over_time(explorer) == escape(said)  # the page says it, and goes on


@pytest.mark.slow
def test_a_run_remembers_its_validations_and_goes_on_after_it_was_resumed(trained):
    kept = History.load(trained / "alignments")
    assert kept.steps.tolist() == [2, 4, 6]
    assert kept.translations.shape == kept.aer.shape == (3, 2)
    for weights, source, target in zip(kept.weights, kept.source, kept.target, strict=True):
        assert weights.shape == (3, len(target.split()), len(source.split()))
    assert np.isfinite(kept.aer).all()
    page = (trained / "alignments/index.html").read_text("utf-8")
    assert page.count('type="range" min="0" max="2"') == 2
    assert "step 6 · AER" in page


# In a browser.

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install -e '.[dev]'")
    if BROWSER is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the path")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def address(runs, trained) -> Iterator[str]:
    """The playground of both runs, the first with the history of the trained one, served by a thread.

    It starts behind a proxy too, and on a machine so slow that gradio gives up asking whether its server is there.
    """
    pytest.importorskip("gradio", reason="no gradio: pip install -e '.[demo]'")
    from nmt.demo.app import build_app, launch

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shutil.copytree(trained / "alignments", runs["gru"].directory / "alignments")
    app = build_app([Explorer(each, SHORT) for each in runs.values()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gradio.networking.url_ok", lambda url: False)
        patch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        patch.delenv("NO_PROXY", raising=False)
        patch.setenv("no_proxy", "")
        launch(app, host="127.0.0.1", port=port, share=False, wait=False)
    yield f"http://127.0.0.1:{port}"
    app.close()


@contextmanager
def opened(browser: Any, address: str) -> Iterator[Any]:
    """A page; an error of a script on it fails the test."""
    page, errors = browser.new_page(viewport={"width": 1200, "height": 1400}), []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(address)
    yield page
    page.close()
    assert not errors


def typed(page: Any, line: str) -> Any:
    """Translate a line; the frame that shows its attention."""
    page.evaluate("document.querySelector('#view iframe')?.remove()")
    page.fill("#line textarea", line)
    page.click("#go")
    frame = page.frame_locator("#view iframe")
    frame.locator("section").wait_for(timeout=30_000)
    return frame


@pytest.mark.slow
def test_a_person_types_chooses_and_holds(browser, address):
    with opened(browser, address) as page:
        frame = typed(page, LINE)
        text = page.input_value("#text textarea")
        words = frame.locator(".target .word")
        assert words.all_text_contents() == text.split()
        assert page.locator("#best tr").count() == 4
        words.nth(1).hover()
        assert frame.locator("svg.pointed").count() == 1
        assert "attends to" in frame.locator(".said").inner_text()
        words.nth(1).click()
        page.locator("#others label").nth(7).wait_for()
        taken = page.locator("#others label").nth(3).inner_text().split()[0]
        page.locator("#others label").nth(3).click()
        page.get_by_text("pieces are as chosen").wait_for()
        page.locator("#unit label").nth(1).click()
        frame.locator("h2", has_text="pieces").wait_for()
        assert taken in frame.locator(".target .word").all_text_contents()
        frame.locator(".target .word").nth(2).click()
        page.locator("#sources label").nth(2).click()
        page.click("#hold")
        page.get_by_text("attention held").wait_for()
        assert "nats" in page.locator("#said").inner_text()
        held = frame.locator("tbody tr").nth(2).locator("td").all_text_contents()
        assert "100" in held or held.count("50") == 2 or held.count("33") == 3
        page.click("#free")
        page.get_by_text("attention held").wait_for(state="detached")


@pytest.mark.slow
def test_another_run_translates_at_once_with_layers_of_its_own(browser, address, runs):
    with opened(browser, address) as page:
        frame = typed(page, LINE)
        page.locator("input[aria-label=run]").click()
        page.get_by_role("option", name=runs["transformer"].name).click()
        frame.locator("h2", has_text="mean over layers").wait_for(timeout=30_000)
        page.locator("#layer input").click()
        page.get_by_role("option", name="1", exact=True).click()
        frame.locator("h2", has_text="layer 1").wait_for(timeout=30_000)
        expected = runs["transformer"].translate([LINE], SHORT)[0].text
        assert frame.locator(".target .word").all_text_contents() == expected.split()


@pytest.mark.slow
def test_any_text_can_be_typed(browser, address):
    with opened(browser, address) as page:
        typed(page, "")
        assert page.input_value("#text textarea") == ""
        title = page.title()
        frame = typed(page, HTML)
        assert frame.locator(".source .word").all_text_contents() == HTML.split()
        assert frame.locator("b").count() == page.locator("#best b").count() == 0
        assert page.title() == title
        frame = typed(page, RIGHT_TO_LEFT)
        first, second = (frame.locator(".source .word").nth(n).bounding_box()["x"] for n in range(2))
        assert first > second
        frame = typed(page, " ".join(["house"] * 500))
        assert frame.locator(".source .word").count() == 500


@pytest.mark.slow
def test_two_runs_and_their_times_are_seen(browser, address):
    with opened(browser, address) as page:
        page.get_by_role("tab", name="Side by side").click()
        page.fill("#both-line textarea", SOURCES[0])
        page.fill("#both-target textarea", "một ngôi nhà")
        page.click("#both-go")
        both = page.frame_locator("#both iframe")
        both.locator("section").nth(1).wait_for()
        assert both.locator(".target .word").all_text_contents() == 2 * ["một", "ngôi", "nhà"]
        page.get_by_role("tab", name="Over time").click()
        moved(page.frame_locator("#history iframe"))


@pytest.mark.slow
def test_the_runs_own_page_has_a_slider(browser, trained):
    with opened(browser, (trained / "alignments/index.html").as_uri()) as page:
        moved(page)


def moved(page: Any) -> None:
    """Move the first slider of a page of three validations."""
    series = page.locator(".series").first
    series.locator("input").fill("0")
    assert series.locator("output").inner_text().startswith("step 2 ")
    assert series.locator("section:visible").count() == 1
    assert series.locator("section:visible .note").inner_text().startswith("greedy: ")
    series.locator("input").fill("2")
    assert series.locator("output").inner_text().startswith("step 6 ")
