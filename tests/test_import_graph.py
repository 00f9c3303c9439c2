"""Imports run downwards only: who may import whom, and who may know which library."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

DATA = {
    "data.batching",
    "data.cache",
    "data.corpus",
    "data.datamodule",
    "data.grammar",
    "data.pairs",
    "data.readers",
    "data.sampling",
    "data.segmentation",
    "data.streaming",
    "data.tokenizer",
}
# Folders that are one room: their files import each other freely, and count as the folder to everyone else.
ROOMS = (
    "attention",
    "alignment",
    "plotting",
    "decoding",
    "run",
    "callbacks",
    "data.grammar",
    "data.readers",
    "models.transformer",
    "benchmark",
    "kernels",
)
# Module of nmt -> the modules of nmt that it may import. `errors` is open to all.
ALLOWED: dict[str, set[str]] = {
    "": {"run"},  # nmt/__init__.py
    "errors": set(),
    "files": set(),
    "masks": set(),
    "dropout": set(),
    "kernels": set(),
    "attention": {"masks", "dropout", "kernels"},
    "models": set(),
    "models.base": set(),
    "models.starts": set(),
    "models.cells": {"models.starts", "dropout", "kernels"},
    "models.wirings": {"models.base", "models.cells", "attention", "dropout", "kernels"},
    "models.gru": {
        "models.base",
        "models.cells",
        "models.starts",
        "models.wirings",
        "kernels",
        "attention",
        "dropout",
        "masks",
    },
    "models.transformer": {"models.base", "models.starts", "kernels", "dropout", "masks"},
    "models.ensemble": {"models.base"},
    "decoding": {"models.base", "masks", "kernels"},
    "data": set(),
    "data.grammar": {"files"},
    "data.readers": set(),
    "data.segmentation": set(),
    "data.tokenizer": {"data.segmentation", "files"},
    "data.sampling": {"data.segmentation", "data.tokenizer"},
    "data.cache": {"data.readers", "data.tokenizer", "files"},
    "data.corpus": {"data.cache", "data.readers", "data.grammar", "data.streaming"},
    "data.pairs": {"alignment", "data.tokenizer"},
    "data.streaming": {"data.batching", "data.pairs", "data.readers", "data.sampling", "data.tokenizer"},
    "data.batching": set(),
    "data.datamodule": DATA - {"data.datamodule"},
    "ranks": set(),
    "launch": set(),
    "losses": {"kernels"},
    "memory": set(),
    "schedules": set(),
    "metrics": set(),
    "alignment": set(),
    "plotting": {"files"},
    "module": {"models.base", "dropout", "losses", "masks", "ranks", "data.batching"},
    "checkpoints": set(),
    "callbacks": {
        "checkpoints",
        "decoding",
        "metrics",
        "alignment",
        "plotting",
        "masks",
        "memory",
        "models.base",
        "ranks",
        *DATA,
    },
    "commands": {"ranks", "settings"},
    "resume": {"memory", "settings"},
    "settings": set(),
}
ALLOWED["run"] = {name for name in ALLOWED if name not in ("", "commands", "launch", "resume")}
ALLOWED["benchmark"] = {
    "data.batching",
    "data.grammar",
    "decoding",
    "kernels",
    "losses",
    "masks",
    "memory",
    "models.base",
    "module",
}
ALLOWED["comparison"] = set()
ALLOWED["comparison.runs"] = {"run", "metrics", "settings", "data.corpus", "data.readers"}
ALLOWED["comparison.figures"] = {"comparison.runs", "metrics"}
ALLOWED["comparison.tables"] = {"comparison.figures", "metrics"}
SCRIPT = {name for name in ALLOWED if name} | {"run"}  # and never another script

# Library -> the only files that may import it; "scripts" stands for every script.
LIBRARY_USERS = {
    "hydra": {"run", "commands", "scripts"},
    "omegaconf": {"run", "comparison.runs", "commands", "scripts"},
    "lightning": {"data.datamodule", "module", "callbacks", "launch", "run", "scripts"},
    "pytorch_lightning": set(),
    "sacrebleu": {"metrics"},
    "matplotlib": {"plotting"},
}


def imported(source: str) -> set[str]:
    """Dotted names of every import in `source`, inside functions too: `from nmt import run` is nmt.run."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                names.add(whole if whole.removeprefix("nmt.") in ALLOWED else node.module)
    return names


def of_nmt(names: set[str]) -> set[str]:
    """Those names that are modules of nmt, without the package's name; "" is the package itself."""
    return {room(name.removeprefix("nmt").removeprefix(".")) for name in names if name.split(".")[0] == "nmt"}


def room(name: str) -> str:
    """The folder that a module belongs to, where the folder is one room; else the module itself."""
    return next((each for each in ROOMS if name.startswith(f"{each}.")), name)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "nmt").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted((ROOT / "nmt").rglob("*.py"))}
SCRIPTS = {f"scripts/{path.name}": path for path in sorted((ROOT / "scripts").glob("*.py"))}


def importers() -> list[tuple[str, Path]]:
    return [*MODULES.items(), *SCRIPTS.items()]


def test_every_module_has_a_place_in_the_table():
    unknown = sorted(set(map(room, MODULES)) - set(ALLOWED))
    assert unknown == [], f"place {unknown} in ALLOWED: say what each may import, and who may import it"


@pytest.mark.parametrize(("name", "path"), importers(), ids=[name or "nmt" for name, _ in importers()])
def test_imports_are_those_the_table_allows(name, path):
    if room(name) not in ALLOWED and name not in SCRIPTS:
        pytest.fail(f"place {name} in ALLOWED: say what it may import, and who may import it")
    own = {room(name)} if room(name) in ROOMS else set()
    allowed = SCRIPT if name in SCRIPTS else ALLOWED[room(name)] | own | ({"errors"} - {name})
    forbidden = sorted(of_nmt(imported(path.read_text(encoding="utf-8"))) - allowed)
    assert forbidden == [], f"{name} may not import {forbidden}; it may import {sorted(allowed)}"


@pytest.mark.parametrize("library", LIBRARY_USERS)
def test_a_library_is_known_only_where_it_belongs(library):
    for name, path in importers():
        roots = {used.split(".")[0] for used in imported(path.read_text(encoding="utf-8"))}
        place = "scripts" if name in SCRIPTS else room(name)
        assert library not in roots or place in LIBRARY_USERS[library], f"{name} may not import {library}"


def test_modules_import_each_other_in_no_circle():
    graph: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        if name:
            others = of_nmt(imported(path.read_text(encoding="utf-8")))
            graph.setdefault(room(name), set()).update(others - {room(name)})
    settled: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in settled:
            for other in sorted(graph.get(name, ())):
                visit(other, (*path, name))
            settled.add(name)

    for name in graph:
        visit(name, ())


def test_the_table_itself_has_no_circle():
    left = dict(ALLOWED)
    while left:
        leaves = [name for name, allowed in left.items() if not allowed & set(left)]
        assert leaves, f"a circle among {sorted(left)}"
        for name in leaves:
            del left[name]


def test_no_file_is_named_for_nothing():
    vague = [p for _, p in importers() if p.stem in {"utils", "util", "helpers", "helper", "misc", "common"}]
    assert vague == []


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("import nmt.run", "run"),
        ("from nmt.run import Run", "run"),
        ("from nmt import alignment", "alignment"),
        ("from nmt import Run", ""),
        ("def f():\n    from nmt.models.gru import GRUTranslator", "models.gru"),
        ("from nmt.models import gru", "models.gru"),
    ],
)
def test_an_import_is_seen_however_it_is_written(line, module):
    assert of_nmt(imported(line)) == {module}
