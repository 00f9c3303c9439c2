"""The page that translates in a browser: its graphs, pieces and server against Python, and its use by a person."""

import errno
import http.client
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from nmt import Run
from nmt.analysis import explain
from nmt.attention import fixed_rows, override_attention
from nmt.attention.masks import padding_mask
from nmt.commands import demo, early_checks
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import DecodingSettings, search
from nmt.errors import UserError, WriteError
from nmt.export import onnx, web
from nmt.run.paths import newest_run
from tests.commands import compose, refused, run, run_composed
from tests.small import BPE, SMALL, SOURCES, TARGETS, make_run, own_model

LINE = "here stands the small house"
HTML = "<b>house</b> & <script>document.title = 'broken'</script>"
RIGHT_TO_LEFT = "הבית הקטן עומד כאן"
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


# Pieces.


def by_node(expression: str) -> Any:
    """The value of a JavaScript expression that may use pieces.js."""
    node = shutil.which("node") or pytest.skip("no node")
    script = f"""{(web.PAGE / "pieces.js").read_text("utf-8")}
        console.log(JSON.stringify({expression}));"""
    command = [node, "--input-type=module", "-"]
    return json.loads(subprocess.run(command, input=script.encode(), capture_output=True, check=True).stdout)


def cut_by_node(model: dict[str, Any], lines: list[str]) -> list[dict[str, Any]]:
    one = "({...pieces.encode(line), back: pieces.decode(pieces.encode(line).ids)})"
    return by_node(f"(pieces => {json.dumps(lines)}.map(line => {one}))(new Pieces({json.dumps(model)}))")


def test_a_text_becomes_a_line_and_is_cut_between_characters():
    text = json.dumps("a\u00a0 \tb\r\n\nc🙂🙂")
    assert by_node(f"lineOf({text}, 9)") == {"line": "a\u00a0 \tb c", "isCut": True}
    assert by_node(f"lineOf({text}, 10)") == {"line": "a\u00a0 \tb c🙂", "isCut": True}
    assert by_node(f"lineOf({text}, 11)") == {"line": "a\u00a0 \tb c🙂🙂", "isCut": False}


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_the_pages_pieces_are_those_of_sentencepiece(model_type, normalization):
    lines = [*SOURCES, *TARGETS, "  two  spaces ", "ﬁne　１２", "é e\u0301", "house🙂🙂 house", "猫", RIGHT_TO_LEFT,
             "▁x▁", "a\u00a0b\u200bc", "\x85 \x1c", "İ ΑΣ", "<s> </s>"]  # fmt: skip
    options = BPE | {"model_type": model_type, "normalization": normalization, "lowercase": True}
    tokenizer = Tokenizer.train(SOURCES * 20, TARGETS * 20, **options, vocab_size=60)
    found = cut_by_node(web.pieces(tokenizer.models[0], lowercase=True), lines)
    encoded = tokenizer.encode_source(lines)
    for line, cut, ids in zip(lines, found, encoded, strict=True):
        assert cut["ids"] == ids[:-1], line
        assert cut["back"]["text"] == tokenizer.decode([ids])[0]
        assert (cut["unknown"] != []) == bool(tokenizer.unknown_characters([line]))


def test_a_vocabulary_that_the_page_cannot_read_is_refused():
    content = own_model(SOURCES * 20, vocab_size=300, byte_fallback=True, model_type="bpe")
    with pytest.raises(UserError, match=r"pieces for bytes.*data\.tokenizer\.model"):
        web.pieces(content, lowercase=False)


def test_the_hint_says_how_the_text_is_written():
    assert web.text_hint(["A house.", "a b"]) == ""
    assert "in lower case and with a space before punctuation" in web.text_hint(["a house .", "is it ?"])
    assert "lower case" not in web.text_hint(["The house .", "Is it ?"])
    assert web.text_hint([]) == ""


def test_a_validation_line_is_cut_as_the_page_cuts_a_text():
    """Else a line of a book takes the page's BPE minutes, or more stack than it has."""
    lines = [" " * 2000 + "a", "a b" * 70_000, "a"]
    read: Any = SimpleNamespace(split=lambda name: {"src": lines})
    longest = int(re.findall(r"const LONGEST = (\d+);", (web.PAGE / "page.js").read_text("utf-8"))[0])
    assert web._validation_text(read) == [lines[1][:longest], "a"]


# Graphs.


@torch.inference_mode()
@pytest.mark.parametrize("way", [["attention=local_p", *SMALL], TRANSFORMER], ids=["local_p", "transformer"])
def test_a_step_whose_attention_can_be_set_is_the_models_own(way, tmp_path):
    model: Any = Run.load(make_run(tmp_path, *way), device="cpu").translator
    src = torch.tensor([[7, 8, 9, 10, model.eos_id]] * 2)
    mask, tgt = padding_mask(src, model.pad_id), torch.tensor([[model.bos_id, 7, 8, 9]] * 2)
    memory = model.encode(src, mask)
    tensors, form = onnx.split_tensors((memory, model.init_state(memory)))
    step, layers = web.ExplorableStep(model, form), len(model.decoder.cross_attentions)
    num_memory = len(onnx.split_tensors(memory)[0])
    held, is_held = torch.zeros(2, layers, 5), torch.zeros(2, layers, dtype=torch.bool)
    held[..., 1] = 1.0
    for position in range(4):
        is_held[1, -1] = position == 2  # of the second hypothesis alone
        logits, weights, *state = step(tgt[:, position], tensors, held, is_held)
        tensors = [*tensors[:num_memory], *state]
        if position == 2:
            now = logits, weights
    free = model.attentions(src, mask, tgt)
    torch.testing.assert_close(now[0][0], model.forward(memory, tgt).logits[0, 2], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(now[1][0], free.cross[0, :, :, 2], atol=1e-5, rtol=1e-4)
    with override_attention(model.decoder.cross_attentions[-1], fixed_rows({2: held[0, 0]})):
        forced = model.forward(memory, tgt).logits[1, 2]
        forced_weights = model.attentions(src, mask, tgt).cross[1, :, :, 2]
    torch.testing.assert_close(now[0][1], forced, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(now[1][1], forced_weights, atol=1e-5, rtol=1e-4)


# The folder.


def test_a_page_asks_for_nothing_foreign_and_runs_no_text_of_a_run(tmp_path, monkeypatch):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "run.json").write_text("{}")
    web.write_page(tmp_path, None)
    page = (tmp_path / "index.html").read_text("utf-8")
    [policy] = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src 'none'")
    assert "script-src 'self' blob: 'wasm-unsafe-eval';" in policy
    assert "$" not in page
    assert json.loads(re.findall(r'id="settings">(.*?)</script>', page)[0])["runs"] == ["0"]
    assert "python -m http.server" in page
    for name in ("sentence.js", "page.js"):
        script = (tmp_path / name).read_text("utf-8")
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_what_the_page_cannot_show_is_refused_before_the_work(runs, tmp_path):
    ours = runs["gru"].directory
    refused(
        run_composed("export", f"run={ours}", "format=onnx", f"output={tmp_path}/o", "runtime=."), "runtime="
    )
    refused(
        run_composed("export", f"run=[{ours},{ours}]", "format=onnx", f"output={tmp_path}/o"), "format=onnx"
    )
    given = [f"run={ours}", "format=web", f"output={tmp_path}/o"]
    refused(run_composed("export", *given, f"runtime={tmp_path}"), "onnxruntime-web 1.30.0", "npm pack")
    assert not (tmp_path / "o").exists()


def test_runs_have_different_names(runs):
    gru, transformer = runs.values()
    names = web._names([gru, transformer, gru])
    assert len(set(names)) == 3
    gru.config = OmegaConf.create({"choices": {"attention": "none", "model": "gru"}})
    assert web._names([gru, transformer])[0] == "no attention"


# The server.


@pytest.fixture
def served(tmp_path) -> Iterator[demo.PageServer]:
    page = tmp_path / "run" / "page"
    (page / "0").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("secret")
    for name in ("index.html", "page.js", "0/run.json", "notes.txt", demo.MADE_FROM):
        (page / name).write_text(name)
    (page / "out.json").symlink_to(tmp_path / "run" / "config.yaml")
    with serving(page) as server:
        yield server


@contextmanager
def serving(folder: Path) -> Iterator[demo.PageServer]:
    """The server of a folder, in a thread."""
    with demo.bind("127.0.0.1", 0) as server:
        server.folder = folder
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(
    server: demo.PageServer, path: str, *, method: str = "GET", host: str | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    content = answer.status, answer.read()
    connection.close()
    return content


def test_the_server_hands_out_the_files_of_the_page_alone(served):
    assert asked(served, "/") == (200, b"index.html")
    assert asked(served, "/0/run.json?x") == (200, b"0/run.json")
    assert asked(served, "/page.js", method="HEAD") == (200, b"")
    outside = (
        "/../config.yaml",
        "/%2e%2e/config.yaml",
        "//etc/passwd",
        "/0/",
        "/0",
        "/notes.txt",
        f"/{demo.MADE_FROM}",
        "/none.js",
        "/out.json",
        "x://[/page.js",
    )
    for path in (*outside, "/..%5c..%5cconfig.yaml", "/%00", "/0/../../config.yaml"):
        assert asked(served, path)[0] == 404, path
    assert asked(served, "/", method="POST")[0] == 501


def test_the_server_answers_under_its_own_names_alone(served):
    for host in ("127.0.0.1", "localhost", "localhost:80", "127.0.0.1:7860"):
        assert asked(served, "/", host=host)[0] == 200
    for host in (
        "evil.example",
        "evil.example:7860",
        "127.0.0.1.evil.example",
        "",
        "[::1]",
        "localhost.evil",
    ):
        assert asked(served, "/", host=host)[0] == 403, host


def test_the_demo_says_what_it_lacks(runs, monkeypatch, served, tmp_path):
    refused(run_composed("demo", "run=[nowhere]"), "nowhere: no such run directory")
    port = served.server_address[1]
    refused(run_composed("demo", f"run={runs['gru'].directory}", f"port={port}"), f"port={port}")
    nothing = run_composed("demo", cwd=tmp_path)  # the project's own logs/ may hold a run
    refused(nothing, "run=RUN_DIR", "nmt train trainer.max_time=00:00:01:00")
    monkeypatch.setattr(early_checks, "find_spec", lambda name: None)
    refused(run_composed("demo", f"run={runs['gru'].directory}"), "pip install -e '.[demo]'")


def test_without_a_run_a_small_one_is_offered(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer in ("n\n", ""):  # Ctrl-D
        monkeypatch.setattr("sys.stdin.readline", lambda answer=answer: answer, raising=False)
        with pytest.raises(UserError, match="no finished run"):
            demo.newest_or_small_run(tmp_path)

    def train(command: list[str], **_: Any) -> None:
        assert "trainer.max_time=00:00:01:00" in command
        compose("train", *command[command.index("train") + 1 :])  # all settings exist
        (tmp_path / "new" / "checkpoints").mkdir(parents=True)
        (tmp_path / "new" / "metrics.json").write_text("{}")

    monkeypatch.setattr("sys.stdin.readline", lambda: "y\n", raising=False)
    monkeypatch.setattr(subprocess, "run", train)
    assert demo.newest_or_small_run(tmp_path) == newest_run(tmp_path) == tmp_path / "new"


def test_the_page_is_made_once_and_again_when_the_checkpoint_changes(tmp_path, monkeypatch):
    there = make_run(tmp_path / "run", "attention=bahdanau", *SMALL)
    made: list[int] = []

    def write(runs: list[Run], directory: Path, **_: Any) -> None:
        made.append(len(runs))
        (directory / "0").mkdir()
        (directory / "0" / "run.json").write_text("{}")

    monkeypatch.setattr(web, "write", write)
    cfg = compose("demo", f"run={there}")
    page = demo.page_of(cfg)
    (page / "page.js").write_text("another's")
    assert demo.page_of(cfg) == page == there / "page"
    assert made == [1]
    assert (page / "page.js").read_bytes() == (web.PAGE / "page.js").read_bytes()
    checkpoint = there / "checkpoints" / "best.ckpt"
    checkpoint.rename(there / "checkpoints" / "last.ckpt")
    demo.page_of(cfg)
    assert made == [1, 1]
    monkeypatch.setattr(web, "write", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        demo.page_of(compose("demo", f"run={there}", "decoding.beam_size=2"))
    assert (page / "index.html").exists()  # a failure leaves the page that was there
    page.joinpath(demo.MADE_FROM).write_text("[" * 100_000)  # a stranger's
    with pytest.raises(ZeroDivisionError):
        demo.page_of(cfg)
    assert [each.name for each in there.iterdir() if "page" in each.name] == ["page"]


def test_a_current_page_in_a_read_only_run_is_served(tmp_path, monkeypatch):
    there = make_run(tmp_path / "run", "attention=bahdanau", *SMALL)
    cfg = compose("demo", f"run={there}")
    monkeypatch.setattr(web, "write", lambda *_, **__: "")
    page = demo.page_of(cfg)

    def read_only(*_: Any) -> None:
        raise WriteError(page, PermissionError(errno.EACCES, "Permission denied"))

    monkeypatch.setattr(web, "write_together", read_only)
    assert demo.page_of(cfg) == page
    (page / "page.js").write_text("of another version")
    with pytest.raises(
        UserError, match=rf"{page}: .* run={there} format=web output=DIR and python -m http\.server"
    ):
        demo.page_of(cfg)


# In a browser.

SMALL_RUN = ["data.num_train=800", "data.num_val=310", "data.num_test=4", "data.max_words=10", "model.size=64",
             "data.max_tokens=512", "data.tokenizer.vocab_size=600", "trainer.max_epochs=4", "model.dropout=0",
             "optimizer.lr=0.005", "trainer.check_val_every_n_epoch=2", "trainer.enable_progress_bar=false",
             "trainer.accelerator=cpu", "callbacks.alignments.num_sentences=1"]  # fmt: skip
KINDS = {
    "gru": ["attention=bahdanau"],
    "local": ["attention=local_p"],
    "transformer": [
        "model=transformer",
        "encoder.num_layers=2",
        "decoder.num_layers=2",
        "decoder.num_heads=2",
    ],
}
TRANSLATE = """async ([number, lines, options]) => {
    const {runs} = await import("./page.js"), run = runs[number], found = [];
    for (const line of lines) {
        const result = await run.translate(line, options), [best] = result.best;
        const {weights} = run.sentence(result, {unit: "words", layer: "mean", head: "mean"});
        found.push({text: run.textOf(best), logProb: best.logProb, ids: best.ids, weights});
    }
    return found;
}"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> dict[str, Run]:
    """A run of each kind, trained for a moment on the built-in corpus."""
    there = tmp_path_factory.mktemp("trained")
    for name, way in KINDS.items():
        ended = run_composed(
            "train", *SMALL_RUN, *way, f"data.cache_dir={there / 'cache'}", f"run_dir={there / name}"
        )
        assert ended.status == 0, ended.err
    return {name: Run.load(there / name, device="cpu") for name in KINDS}


@pytest.fixture(scope="module")
def folder(trained, runtime, tmp_path_factory) -> Path:
    """The page of the trained runs."""
    there = tmp_path_factory.mktemp("site") / "page"
    paths = ",".join(str(each.directory) for each in trained.values())
    ended = run("export", f"run=[{paths}]", "format=web", f"output={there}", f"runtime={runtime}")
    assert ended.status == 0, ended.err
    return there


@pytest.fixture(scope="module")
def address(folder) -> Iterator[str]:
    with serving(folder) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"


def ready(page: Any) -> None:
    """Wait until a translation is drawn."""
    page.locator("#view .target .word").first.wait_for(timeout=60_000)


def given(**choices: str) -> str:
    """The part of an address that holds choices."""
    return "#" + "&".join(f"{key}={quote(value)}" for key, value in choices.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_the_browser_translates_as_python_does_and_asks_for_nothing(name, trained, opened, address):
    ours, number = trained[name], list(KINDS).index(name)
    lines = [line for line in ours.split("val")["src"] if line.strip()][:300]
    assert len(lines) == 300
    with opened(address) as page:
        ready(page)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        for beam, some in ((1, lines), (5, lines[:100])):
            decoding = DecodingSettings(beam_size=beam, length_alpha=ours.decoding.length_alpha)
            expected = ours.translate(some, decoding if beam > 1 else decoding.greedy)
            found = page.evaluate(TRANSLATE, [number, some, {"beam": beam}])
            assert [each["text"] for each in found] == [each.text for each in expected]
            for one, other in zip(found, expected, strict=True):
                assert one["logProb"] == pytest.approx(other.log_prob, abs=1e-3)
                weights = np.reshape(one["weights"], other.weights.shape)  # of an empty translation too
                np.testing.assert_allclose(weights, other.weights, atol=1e-4)
        assert not requests


@pytest.mark.slow
@torch.inference_mode()
@pytest.mark.parametrize("name", KINDS)
def test_attention_held_in_the_browser_is_held_as_in_python(name, trained, opened, address):
    ours, number = trained[name], list(KINDS).index(name)
    decoder: Any = ours.translator.decoder
    lines = [each for each in ours.split("val")["src"] if len(each.split()) > 6]
    line = max(ours.translate(lines), key=lambda each: len(each.text)).source
    [ids] = ours.tokenizer.encode_source([line])
    src = ours.pad([ids])
    [[free]] = search(ours.translator, src, ours.decoding)
    place, sources = 2, [1, 3]
    row = torch.zeros(len(ids))
    row[sources] = 0.5
    layer = len(decoder.cross_attentions) - 1
    with override_attention(decoder.cross_attentions[layer], fixed_rows({place: row})):
        prefix = ours.pad([free.ids[:place]])
        [[held]] = search(ours.translator, src, ours.decoding, prefixes=prefix)
        tgt = torch.tensor([[ours.tokenizer.bos_id, *held.ids]])
        weights = ours.translator.attentions(src, padding_mask(src, 0), tgt).cross[0, layer, 0]
    assert torch.equal(weights[place], row)
    options = {"prefix": list(free.ids[:place]), "pins": {str(place): [layer, *sources]}}
    with opened(address) as page:
        ready(page)
        [found] = page.evaluate(TRANSLATE, [number, [line], options])
    assert found["ids"] == list(held.ids)
    assert found["logProb"] == pytest.approx(held.log_prob, abs=1e-3)
    assert held.log_prob != pytest.approx(free.log_prob, abs=1e-3)


SAYS = """verb => {
    const word = document.querySelector("#view .target .word");
    word?.blur();
    word?.focus();
    return document.querySelector("#view .said")?.textContent.match(verb + ".*[0-9]");
}"""
OCCLUDE = """async ([number, lines]) => {
    const {runs} = await import("./page.js"), run = runs[number], found = [];
    for (const line of lines) {
        const result = await run.translate(line);
        result.lost = await run.occlude(result);
        const {weights} = run.sentence(result, {unit: "words", method: "occlusion"});
        found.push({text: run.textOf(result.best[0]), ids: result.best[0].ids, lost: result.lost, weights});
    }
    return found;
}"""


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_occlusion_in_the_browser_is_that_of_python(name, trained, opened, address):
    ours, number = trained[name], list(KINDS).index(name)
    with opened(address) as page:
        ready(page)
        lines = [line for line in ours.split("val")["src"] if len(line.split()) > 4][:8]
        found = dict(zip(lines, page.evaluate(OCCLUDE, [number, lines]), strict=True))
    # A translation may be cut into other pieces than it was written in
    same = {line: each for line, each in found.items()
            if ours.tokenizer.encode_target([each["text"]])[0][:-1] == each["ids"]}  # fmt: skip
    assert len(same) > 3
    for line, each in same.items():
        expected = explain(ours, line, each["text"], "occlusion")
        np.testing.assert_allclose(each["lost"], expected.source, atol=1e-3)
        words = ours.between_words(expected.weights, line, each["text"])
        np.testing.assert_allclose(each["weights"], words, atol=1e-3)


@pytest.mark.slow
def test_a_person_types_chooses_and_holds(trained, opened, address):
    expected = trained["gru"].translate(["the boy eats ."])[0]
    with opened(f"{address}/{given(run='bahdanau attention', text='the boy eats .')}") as page:
        ready(page)
        words = page.locator("#view .target .word")
        assert page.inner_text("#translation") == expected.text
        assert words.all_text_contents() == expected.text.split()
        assert page.locator("#best tr").count() == 5
        assert "en to vi" in page.inner_text("h1")
        words.nth(0).hover()
        assert "attends to" in page.inner_text(".said")
        for method, verb in (("occlusion", "needs"), ("attention", "attends to")):
            page.select_option("#method", method)
            page.wait_for_function(SAYS, arg=f" {verb}: ")  # the page draws again
            assert ("method=occlusion" in page.url) == (method == "occlusion")
        words.nth(0).click()
        other = page.locator("#others button").nth(3)
        piece = other.inner_text().split()[0].strip("▁")
        other.click()
        page.get_by_text("pieces are as chosen").wait_for()
        assert page.inner_text("#translation").startswith(piece)
        page.select_option("#unit", "pieces")
        page.locator("#view .target .word").nth(1).click()
        page.locator("#sources input").nth(2).check()
        page.click("#hold")
        page.get_by_text("nats").wait_for()
        link = page.url
        text = page.inner_text("#translation")
    with opened(link) as page:  # sent to somebody else
        page.get_by_text("nats").wait_for(timeout=60_000)
        assert page.inner_text("#translation") == text
        page.click("#free")
        page.get_by_text("nats").wait_for(state="detached")
        page.focus("#view .target .word")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.locator("#others button").first.wait_for()


@pytest.mark.slow
def test_runs_stand_side_by_side_and_over_time(trained, opened, address):
    with opened(address) as page:  # which is what the page of several runs begins with
        page.locator("#view section").nth(2).wait_for(timeout=60_000)
        short = page.input_value("#text")
        page.fill("#length", "8")
        assert len(page.input_value("#text")) > len(short)
        page.fill("#forced", "một ngôi nhà")
        page.locator("#view .target .word", has_text="một").nth(2).wait_for()
        assert page.locator("#view .target .word").all_text_contents() == 3 * ["một", "ngôi", "nhà"]
        page.select_option("#run", "transformer")
        page.select_option("#layer", "1")
        page.select_option("#head", "0")
        page.locator("#view tbody td[style]").first.wait_for()
        page.locator("summary", has_text="during training").click()
        slider = page.locator("#history input").first
        slider.fill("0")
        assert page.locator("#history output").first.inner_text().startswith("step ")


@pytest.mark.slow
def test_any_text_can_be_typed(opened, address):
    name = "bahdanau attention"
    with opened(f"{address}/{given(run=name, text=HTML)}") as page:
        ready(page)
        title = page.title()
        assert page.locator("#view .source .word").all_text_contents() == HTML.split()
        assert page.locator("#view b, #best b").count() == 0
        page.fill("#text", "")
        page.locator("#view section").wait_for(state="detached")
        page.fill("#text", RIGHT_TO_LEFT)
        page.get_by_text("does not know").wait_for()
        first, second = (page.locator("#view .source .word").nth(n).bounding_box()["x"] for n in range(2))
        assert first > second
        page.fill("#text", "the 🙂 boy")
        page.get_by_text("does not know 🙂:").wait_for()
        page.fill("#text", " ".join(["house"] * 6000))
        page.get_by_text("Only the first 1000 characters").wait_for()
        assert page.title() == title
    for wrong in (
        "#run=none&layer=7&chosen=[1",
        '#chosen={"prefix":[99999],"pins":{"0":[5,1]}}',
        "#beam=-1&unit=x",
    ):
        with opened(f"{address}/{wrong}") as page:
            ready(page)


@pytest.mark.slow
def test_a_page_that_cannot_work_says_so_in_one_line(opened, address, folder, tmp_path):
    with opened((folder / "index.html").as_uri()) as page:
        assert "python -m http.server" in page.inner_text("#status")
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "1" / "step.onnx").unlink()
    with serving(broken) as server:
        there = f"http://127.0.0.1:{server.server_address[1]}"
        with opened(there) as page:
            page.get_by_text("1/step.onnx is not there (404)").wait_for(timeout=60_000)
        (broken / "1" / "step.onnx").write_bytes(b"no graph")
        with opened(there) as page:
            page.get_by_text("did not work").wait_for(timeout=60_000)
    with opened("about:blank") as page:
        page.add_init_script("delete globalThis.WebAssembly")
        page.goto(address)
        page.get_by_text("no WebAssembly").wait_for()
