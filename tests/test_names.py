"""A reader who knows the field finds a file or a class by its name: no name stands twice in the package."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "nmt"
SHARED_FILES = {"__init__.py", "__main__.py", "base.py"}
# The same thing on both sides, and commands with the module that they are made of
PAIRS = {
    "recurrent.py": {"encoders", "decoders"},
    "transformer.py": {"encoders", "decoders"},
    "train.py": {"commands", "training"},
}
INTERFACES = {"main": "commands", "write": "export"}  # of every command, of every format of an export


def test_no_file_name_stands_twice():
    homes = defaultdict(set)
    for file in ROOT.rglob("*.py"):
        homes[file.name].add(str(file.parent.relative_to(ROOT)))
    for name, folders in homes.items():
        assert name in SHARED_FILES or len(folders) == 1 or folders == PAIRS.get(name), (name, folders)


def test_no_public_class_or_function_name_stands_twice():
    homes = defaultdict(list)
    for file in ROOT.rglob("*.py"):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                homes[node.name].append(str(file.relative_to(ROOT)))
    for name, files in homes.items():
        is_interface = all(file.startswith(f"{INTERFACES.get(name)}/") for file in files)
        assert is_interface or len(files) == 1, (name, files)
