"""README, guides, results: every command and block of Python runs, every link leads somewhere, no table is old."""

import json
import re
import runpy
import shlex
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import hydra
import pytest
import torch

from nmt.attention.masks import masked_softmax
from nmt.commands import run_names
from tests.commands import CONFIGS, ROOT, run

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
RUN_PAGES = [
    page for page in PAGES if page.parent.name in ("guides", "developing") or page.name == "README.md"
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Hidden settings that make a command small, by what it trains on.
TINY = ["model.size=16", "trainer.max_epochs=1", "trainer.limit_train_batches=2", "trainer.enable_progress_bar=false",
        "trainer.accelerator=cpu", "trainer.log_every_n_steps=1", "callbacks.alignments.num_sentences=1"]  # fmt: skip
BUILT_IN = [
    "data.num_train=60",
    "data.num_val=4",
    "data.num_test=4",
    "data.max_words=12",
    "data.tokenizer.vocab_size=200",
]
DOCUMENTS = ["data.num_train=20", "data.num_val=4", "data.num_test=4"]
BENCHMARK = [
    *BUILT_IN,
    "model.size=16",
    "num_batches=1",
    "num_decode_batches=1",
    "repeats=1",
    "startup=false",
]
# Several processes, another machine or a cluster, a server, trackers, models of one kind: their
# settings are composed here, and run by the tests of ddp, demo, trackers and export.
COMPOSED_ONLY = (
    "torchrun ",
    "trainer=ddp",
    "hydra/launcher=",
    "demo.py",
    "logger=",
    "export.py",
    "scripts/workbench/",
)


def blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in BLOCK.findall(page.read_text("utf-8")) if name == language]


def commands(page: Path) -> list[str]:
    """The lines of the page's shell blocks, without their comments."""
    lines = [line.split("  #")[0].strip() for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line]


def parts(line: str) -> tuple[str, list[str]]:
    """The script's name and its arguments."""
    words = shlex.split(line.partition("| python ")[2] or line)
    place = next(number for number, word in enumerate(words) if word.startswith("scripts/"))
    return Path(words[place]).stem, words[place + 1 :]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_every_block_says_its_language():
    for page in RUN_PAGES:
        fences = re.findall(r"^```.*$", page.read_text("utf-8"), re.MULTILINE)
        assert all(fence != "```" for fence in fences[::2]), page


@pytest.mark.parametrize("page", RUN_PAGES, ids=named)
def test_every_command_is_one_of_ours_and_what_is_not_run_below_composes(page):
    for line in commands(page):
        if line.startswith("make "):
            for target in line.split()[1:]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE), line
        elif line.startswith("python scripts/workbench/"):
            assert (ROOT / line.split()[1]).is_file(), line  # its tests run it
        elif line.startswith("tensorboard "):
            assert shlex.split(line)[1] == "--logdir"
        else:
            name, words = parts(line)
            assert (CONFIGS / f"{name}.yaml").exists(), line
            if not any(each in line for each in COMPOSED_ONLY):
                continue
            words = [word.split(",")[0] if "-m" in words else word for word in words if word != "-m"]
            words = [word for word in words if not word.startswith("hydra")]
            with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
                hydra.compose(name, overrides=words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with what the pages' words in capitals stand for: runs of both directions, texts, alignments."""
    there = tmp_path_factory.mktemp("docs")
    (there / "TEXT").mkdir()
    cache = f"data.cache_dir={there / 'cache'}"
    shared = [*BUILT_IN, *TINY, cache, "callbacks.checkpoint.keep=2"]
    for name, more in {
        "RUN_DIR": ["trainer.max_epochs=2"],
        "RUN_DIR_2": ["seed=2", f"data.tokenizer.model={there}/RUN_DIR/tokenizer/joint.model"],
        "REVERSE_RUN": ["data.src_lang=vi", "data.tgt_lang=en"],
    }.items():
        learned = not any("tokenizer.model=" in each for each in more)
        given = [each for each in shared if learned or "vocab_size" not in each]
        ended = run("train", *given, *more, f"run_dir={there / name}")
        assert ended.status == 0, ended.err
    from nmt import Run

    pairs = Run.load(there / "RUN_DIR", device="cpu").split("train")
    for split in ("train", "val", "test", "test_2016_flickr", "test_2017_flickr"):
        most = None if split == "train" else 10
        (there / f"TEXT/{split}.en").write_text("".join(f"{line}\n" for line in pairs["src"][:most]), "utf-8")
        (there / f"TEXT/{split}.vi").write_text("".join(f"{line}\n" for line in pairs["tgt"][:most]), "utf-8")
    (there / "LABELS").mkdir()
    (there / "DOCUMENTS").mkdir()
    (there / "SUMMARIES").mkdir()
    for split in ("train", "val", "test"):
        table = "".join(f"{line}\t{len(line.split()) % 2}\n" for line in pairs["src"])
        (there / f"LABELS/{split}.tsv").write_text(table, "utf-8")
        rows = ({"text": line, "summary": line[:20]} for line in pairs["src"])
        (there / f"SUMMARIES/{split}.jsonl").write_text(
            "".join(f"{json.dumps(row)}\n" for row in rows), "utf-8"
        )
        rows = ({"text": [line, line], "label": str(len(line.split()) % 2)} for line in pairs["src"])
        (there / f"DOCUMENTS/{split}.jsonl").write_text(
            "".join(f"{json.dumps(row)}\n" for row in rows), "utf-8"
        )
    few = {"FILE": pairs["src"][:3], "FILE.en": pairs["src"][:3], "FILE.vi": pairs["tgt"][:3],
           **dict.fromkeys(("FILE.ref1", "FILE.ref2", "FILE.out"), pairs["tgt"][:3]),
           "FILE.talp": pairs["alignment"][:3], "FILE.prefixes": ["", "tôi", ""]}  # fmt: skip
    for name, lines in few.items():
        (there / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    shutil.copy(there / "RUN_DIR/hypotheses.txt", there / "SYSTEM.txt")
    shutil.copy(there / "RUN_DIR/tokenizer/joint.model", there / "FILE.model")
    return there


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    """A copy of `trained`, where a page's commands may write."""
    return shutil.copytree(trained, tmp_path / "here")


def shortened(line: str, name: str, words: list[str]) -> list[str]:
    """The arguments of a command with what makes it small."""
    if name == "benchmark":
        if "compare=" in line:
            return [word.replace("A.json", "FILE.json").replace("B.json", "FILE.json") for word in words]
        return [*words, *BENCHMARK]
    if name == "compare":
        return [*words, "num_bootstrap=10", "num_trials=10"]
    words = [word.replace("=DIR/", "=TEXT/").replace("data.path=DIR", "data.path=TEXT") for word in words]
    if name != "train":
        return words
    tiny = TINY
    if "callbacks" not in line and "experiment=" not in line:  # pictures take longest
        tiny = [*(each for each in TINY if not each.startswith("callbacks.")), "callbacks=minimal"]
    if "-m" in words:  # two of each
        words = [re.sub(r"^([^=]+=[^,]+,[^,]+),.*", r"\1", word) for word in words]
    if any(word.startswith("resume=") for word in words):
        return [*words, "trainer.enable_progress_bar=false"]
    if "data.path=" not in line:
        words += ["hydra.sweeper.n_trials=2"] * ("tuning=" in line)
        return [*words, *tiny, *(DOCUMENTS if "experiment=document" in line else BUILT_IN)]
    if "data.streaming=" in line:
        tiny = [*(each for each in tiny if "limit_train" not in each), "data.streaming=2"]
    size = 120 if "data.src_lang=text" in line else 200
    learned = not any(key in line for key in ("data.tokenizer.model=", "start_from="))
    vocabulary = [f"data.tokenizer.vocab_size={size}"] if learned else []
    return [*words, *tiny, *vocabulary]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN_PAGES, ids=named)
def test_every_command_of_a_page_runs(page, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    text = page.read_text("utf-8")
    for name, code in re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(code, "utf-8")
    for name, settings in re.findall(
        r"`([\w/]+\.yaml)`:\n\n```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(settings, "utf-8")
    began = datetime.now()
    for number, line in enumerate(commands(page)):
        if "python scripts/" not in line or any(each in line for each in COMPOSED_ONLY):
            continue
        name, words = parts(line)
        # Each command is a process of its own for its reader, and two may be over within one second.
        monkeypatch.setattr(run_names, "_begin", lambda number=number: began + timedelta(seconds=number))
        said = line.partition("|")[0].removeprefix("echo").strip().strip('"') if "| python" in line else ""
        ended = run(name, *shortened(line, name, words), cwd=folder, stdin=f"{said}\n".encode())
        assert ended.status == 0, (line, ended.err)
        if said:
            assert ended.out.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in RUN_PAGES if blocks(page, "python")], ids=named)
def test_every_block_of_python_runs(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    names: dict = {}
    for code in blocks(page, "python"):
        exec(code, names)


def test_the_example_of_a_new_mechanism_is_one():
    [code] = [block for block in blocks(ROOT / "README.md", "python") if "Attention" in block]
    names: dict = {}
    exec(code, names)
    attention = names["CosineAttention"](query_size=3, key_size=3, temperature=0.1, normalizer=masked_softmax)
    query, states = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    real = torch.ones(2, 5, dtype=torch.bool)
    attended = attention(query, states, states, real, positions=torch.arange(4).expand(2, 4), past=None)
    cosines = torch.nn.functional.cosine_similarity(query[:, :, None], states[:, None], dim=-1)
    torch.testing.assert_close(attended.weights, (cosines / 0.1).softmax(dim=-1))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "data/README.md"], ids=named)
def test_every_link_leads_somewhere(page):
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", prose):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), (path, anchor)
        assert not anchor or anchor in anchors(target), (path, anchor)


def test_the_generated_pages_and_tables_are_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    for file, text in runpy.run_path(str(ROOT / "docs/generate.py"))["pages"]().items():
        assert file.read_text("utf-8") == text, f"{named(file)} is out of date: run `make reference`"


CHAPTERS = sorted((ROOT / "docs/learn").glob("[0-9]*.md"))


# What takes longest in a chapter, and what takes moments in its place
SMALLER = {
    "models": {"num_train=8000": "num_train=300", "num_val=100": "num_val=4", "num_test=600": "num_test=12",
               "epochs=4": "epochs=1", "vocab_size=1300": "vocab_size=300"},
    "01_bottleneck": {"5000": "300", "1200": "40"},
    "04_scaling": {"steps=200": "steps=20"},
    "06_self_attention": {"steps=400": "steps=4"},
    "07_transformer": {"steps=200": "steps=20"},
    "08_beyond_translation": {"num_train=2000": "num_train=100", "num_val=50": "num_val=4",
                              "num_test=300": "num_test=12"},
    "09_reading": {"[:30]": "[:4]"},
}  # fmt: skip


def smaller(file: Path, folder: Path) -> Path:
    """A copy of the file in the folder that takes moments to run. Fails if a replacement finds nothing."""
    text = file.read_text("utf-8")
    for usual, less in SMALLER.get(file.stem, {}).items():
        assert usual in text
        text = text.replace(usual, less)
    copy = folder / file.name
    copy.write_text(text, "utf-8")
    return copy


@pytest.fixture(scope="module")
def hardly_trained(tmp_path_factory) -> Path:
    """A folder with the chapters' module, whose models are trained for moments, each once."""
    return smaller(ROOT / "docs/learn/models.py", tmp_path_factory.mktemp("learn")).parent


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_a_chapter_runs(chapter, hardly_trained):
    source = runpy.run_path(str(ROOT / "docs/execute.py"))
    notebook = source["read"](smaller(chapter, hardly_trained))
    resources = {"metadata": {"path": str(hardly_trained)}}
    source["NotebookClient"](notebook, timeout=None, resources=resources).execute()


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_a_chapters_notebook_is_its_markdown_with_results(chapter):
    import nbformat  # takes seconds

    source = runpy.run_path(str(ROOT / "docs/execute.py"))
    kept, wanted = nbformat.read(chapter.with_suffix(".ipynb"), as_version=4), source["read"](chapter)
    contents = [
        [(cell.cell_type, cell.source, cell.metadata) for cell in each.cells] for each in (kept, wanted)
    ]
    assert contents[0] == contents[1], "run `make notebooks`"
    for cell in kept.cells:
        assert cell.cell_type != "code" or cell.execution_count, cell.source
        assert all(output.output_type != "error" for output in cell.get("outputs", ()))
    assert chapter.with_suffix(".ipynb").stat().st_size < source["MOST_BYTES"] == 500_000


def test_every_key_of_the_settings_has_its_own_anchor():
    for page in (ROOT / "docs/reference/settings").glob("*.md"):
        text = page.read_text("utf-8")
        anchors = re.findall(r'^\| <a id="([^"]+)"></a>`', text, re.MULTILINE)
        assert len(anchors) == len(set(anchors)) == len(re.findall(r"^\| (?:<.*>)?`", text, re.MULTILINE)), (
            page
        )


def test_every_record_says_where_it_comes_from():
    for file in (ROOT / "docs/results").glob("*.json"):
        record = json.loads(file.read_text("utf-8"))
        for each in record.get("runs", []):
            assert each["command"].startswith("python scripts/"), file
            assert {"commit", "machine"} <= each.keys(), file


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 160
