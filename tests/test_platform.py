"""Systems other than Linux: what only Unix has is never needed, and what Windows refuses is never done."""

import ast
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from nmt.atomic import new_folder
from nmt.run.paths import claim_directory
from nmt.training import launch, memory
from tests.bare import HIDDEN, MODULES
from tests.commands import ROOT

FILES = [file for folder in ("nmt", "scripts", "docs") for file in sorted((ROOT / folder).rglob("*.py"))]


def of_unix(tree: ast.AST) -> set[str]:
    """What code imports or reads from `os` and `signal` that only Unix has."""
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    read = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return (imported & MODULES) | (
        read & {f"{module}.{name}" for module in ("os", "signal") for name in HIDDEN}
    )


def test_no_file_needs_unix_to_be_imported():
    for file in FILES:
        tree = ast.parse(file.read_text("utf-8"))
        within = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        top = ast.Module([node for node in tree.body if not isinstance(node, within)], [])
        for node in ast.walk(top):
            if isinstance(node, ast.ClassDef):
                node.body = [each for each in node.body if not isinstance(each, within)]
        assert not of_unix(top), file


def test_the_stand_in_finds_what_only_unix_has():
    found = of_unix(
        ast.parse("import fcntl\nfrom resource import getrusage\nos.geteuid()\nsignal.SIGKILL\nos.getpid()")
    )
    assert found == {"fcntl", "resource", "os.geteuid", "signal.SIGKILL"}


@pytest.fixture
def bare(monkeypatch):
    """This process without the modules of Unix alone and its strongest signal."""
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr(signal, "SIGKILL", raising=False)


def test_memory_is_measured_without_unix(bare, monkeypatch):
    info = SimpleNamespace(rss=2**20, peak_wset=3 * 2**20)
    monkeypatch.setattr(psutil.Process, "memory_info", lambda self: info)
    assert memory.held_memory() == 2**20
    assert memory.most_memory() == 3 * 2**20


def test_memory_of_a_process_that_has_ended_is_none():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert memory.held_memory(process.pid) == 0


def test_memory_is_given_back_only_by_a_library_that_can(monkeypatch):
    def load(name: None) -> None:
        raise TypeError("argument of type 'NoneType' is not iterable")  # as on Windows

    monkeypatch.setattr(ctypes, "CDLL", load)
    memory.give_back()


def test_a_run_directory_is_held_without_locks(bare, tmp_path):
    with claim_directory(tmp_path / "run", may_rename=False):
        pass


def test_other_processes_are_ended_without_sigkill(bare):
    sent = []
    launch.end_children(SimpleNamespace(strategy=SimpleNamespace(launcher=SimpleNamespace(kill=sent.append))))
    assert sent == [signal.SIGTERM]


def test_a_folder_takes_the_place_of_an_empty_one_where_folders_cannot_be_replaced(tmp_path, monkeypatch):
    replace = os.replace

    def refuse(source: Path, target: Path) -> None:
        if target.is_dir():
            raise PermissionError(13, "Access is denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    (tmp_path / "new").mkdir()
    with new_folder(tmp_path / "new") as folder:
        (folder / "file").touch()
    assert [each.name for each in tmp_path.iterdir()] == ["new"]
    assert (tmp_path / "new/file").exists()


@pytest.mark.slow
def test_every_command_of_the_day_runs_without_unix(tmp_path):
    """With texts in ASCII unless a file names its encoding, and processes that are spawned."""
    run, texts = tmp_path / "run", {"src": "the cat sleeps .\n", "tgt": "con mèo ngủ .\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    given = {name: f"{name}={tmp_path / name}" for name in texts}
    commands = [
        ["train", "data.num_train=100", "data.num_val=5", "data.num_test=5", "data.max_words=12", "model.size=16",
         "data.tokenizer.vocab_size=300", "trainer.max_epochs=2", "trainer.enable_progress_bar=false",
         f"run_dir={run}", f"data.cache_dir={tmp_path / 'cache'}"],
        ["train", f"resume={run}", "trainer.max_epochs=3"],
        ["evaluate", f"run={run}", "decoding=greedy", "num_bootstrap=0"],
        ["translate", f"run={run}", f"input={tmp_path / 'src'}", f"output={tmp_path / 'out'}", "decoding=greedy",
         f"alignments={tmp_path / 'links'}", f"heatmaps={tmp_path / 'maps'}", f"page={tmp_path / 'page.html'}"],
        ["align", f"run={run}", *given.values(), f"output={tmp_path / 'aligned'}"],
        ["compare", f"runs=[{run}]", "num_bootstrap=10", "num_trials=10", f"output={tmp_path / 'compared'}"],
        ["demo"],
    ]  # fmt: skip
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [word for command in commands for word in (*command, "--")][:-1]
    ended = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-m", "tests.bare", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
    )
    assert ended.returncode == 0, ended.stderr.decode()[-4000:]
    for name in ("out", "links", "maps", "page.html", "aligned", "compared"):
        assert (tmp_path / name).exists()
