"""Write the generated pages: the reference of commands and settings, and the tables of results in README and docs.

    python docs/generate.py            writes them
    python docs/generate.py --check    says which differ from what is there, and fails

Settings come from `configs/` (values and comments) and from the constructors they name (types and ranges); results come
from the records in `docs/results/`, which commands wrote.
"""

import inspect
import re
import sys
from pathlib import Path
from typing import Any, get_type_hints

import hydra
import yaml
from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from typing_extensions import is_typeddict

import records
from nmt.commands.settings import OF_COMMANDS
from nmt.settings import GROUPS

DOCS = Path(__file__).parent
CONFIGS = DOCS.parent / "configs"
SAID = "<!-- Written by docs/generate.py: change what it reads, then run `make reference`. -->\n"
# keys that say how a file is composed, not what is built
COMPOSING = {"defaults", "hydra", "_target_", "_partial_", "_convert_", "reader"}

Rows = list[tuple[str, Any, str]]  # a dotted key, its value as written, its comment


def read_settings(file: Path) -> tuple[str, str | None, Rows]:
    """A settings file's first comment, its target, and its keys with their values and comments."""
    lines = file.read_text("utf-8").splitlines()
    head = " ".join(line[1:].strip() for line in lines if line.startswith("#") and "@package" not in line)
    comments: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in lines:
        if found := re.match(r"( *)([\w@/]+):(?: |$)", line):
            indent = len(found[1])
            path = [each for each in path if each[0] < indent] + [(indent, found[2])]
            comments[".".join(name for _, name in path)] = line.partition(" # ")[2].strip()
        elif path and (more := re.match(r"\s+# (.*)", line)):
            comments[".".join(name for _, name in path)] += f" {more[1].strip()}"
    tree = yaml.safe_load("\n".join(lines)) or {}
    within = _package(file)
    rows = [(f"{within}{key}", value, comments.get(key, "")) for key, value, _ in _leaves(tree)]
    return head, tree.get("_target_"), rows


def _package(file: Path) -> str:
    """What stands before a file's keys, within its group: `wandb.` where the file is of `# @package logger.wandb`."""
    found = re.match(rf"# @package {file.parent.name}\.(\w+)", file.read_text("utf-8"))
    return f"{found[1]}." if found else ""


def _leaves(tree: dict[str, Any], prefix: str = "") -> Rows:
    found: Rows = []
    for key, value in tree.items():
        if key in COMPOSING:
            continue
        if isinstance(value, dict) and value:
            found += _leaves(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value, ""))
    return found


def say_type(kind: Any) -> str:
    """A type with its range, in words: `integer ≥ 1`, `number ≥ 0 and < 1`, `unigram or bpe`."""
    try:
        schema = TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True)).json_schema()
    except PydanticUserError:
        return ""  # an object that another group builds
    return _say_schema(schema)


def _say_schema(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(filter(None, map(_say_schema, schema["anyOf"]))))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    name = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false",
            "null": "null", "array": "list", "object": "mapping"}.get(schema.get("type", ""), "")  # fmt: skip
    bounds = [
        f"{sign} {'2^32' if schema[key] == 2**32 else format(schema[key], 'g')}"
        for key, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        )
        if key in schema
    ]
    if name == "list" and "items" in schema:
        kind, _, limits = _say_schema(schema["items"]).partition(" ")
        name = f"list of {kind}{'' if kind.startswith('`') else 's'} {limits}".strip()
    return f"{name} {' and '.join(bounds)}".strip()


def types_of(target: str | None) -> dict[str, str]:
    """The types of a target's arguments; none where it declares none, as torch and Lightning."""
    if target is None or not target.startswith("nmt."):
        return {}
    parameters = inspect.signature(hydra.utils.get_object(target), eval_str=True).parameters
    return {
        name: say_type(each.annotation)
        for name, each in parameters.items()
        if each.annotation is not inspect.Parameter.empty
    }


def types_of_command(kinds: Any, prefix: str = "") -> dict[str, str]:
    found = {}
    for name, kind in get_type_hints(kinds, include_extras=True).items():
        if is_typeddict(kind):
            found |= types_of_command(kind, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = say_type(kind)
    return found


def table(rows: Rows, types: dict[str, str]) -> str:
    lines = ["| key | default | type and range | meaning |", "|---|---|---|---|"]
    for key, value, comment in rows:
        group = re.fullmatch(r"\$\{(\w+)\}", str(value))
        if group and any(group[1] == each.name for each in GROUPS):
            comment = comment or f"the choice of `{group[1]}=`"
        default = "required" if value == "???" else f"`{_yaml(value)}`"
        cells = (f"`{key}`", default, types.get(key, ""), comment)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def _yaml(value: Any) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=1000)
        .split("\n...")[0]
        .strip()
    )


def configuration() -> str:
    """The page of every group, its choices and their settings."""
    declared = get_type_hints(OF_COMMANDS["train"])
    parts = [
        "# Settings", SAID,
        "Every setting is one dotted key on the command line: `model.dropout=0.2`. A choice of a group is "
        "`GROUP=CHOICE`: `attention=bahdanau`. Below, each group's choices with their keys, without the group's "
        "name. A default such as `${model.size}` is taken from another setting. The keys of `python scripts/train.py` "
        "itself are under [Commands](commands.md).",
    ]  # fmt: skip
    for group in GROUPS:
        folder = CONFIGS / group.name
        files = sorted(folder.glob("*.yaml"), key=lambda file: (file.stem != "base", file.stem))
        parts.append(f"## {group.name}\n\n{group.what[0].upper()}{group.what[1:]}.")
        for file in files:
            head, target, rows = read_settings(file)
            title = "Shared by all" if file.stem == "base" else f"`{group.name}={file.stem}`"
            if group.name == "experiment":
                parts.append(f"**{title}** {head}\n\n```yaml\n{_body(file)}\n```")
                continue
            types = {f"{_package(file)}{key}": kind for key, kind in types_of(target).items()}
            types |= types_of_command(declared[group.name]) if group.name in declared else {}
            types |= _types_of_parts(file, rows) | _types_of_reader(file)
            built = f" Builds `{target}`." if target else ""
            text = f"**{title}** {head}{'' if head.endswith('.') or not head else '.'}{built}"
            parts.append(f"{text}\n\n{table(rows, types)}" if rows else text)
    return "\n\n".join(parts) + "\n"


def _types_of_parts(file: Path, rows: Rows) -> dict[str, str]:
    """Types of the settings of a group of several parts, as metrics and callbacks: `bleu.tokenize`."""
    tree = yaml.safe_load(file.read_text("utf-8")) or {}
    found: dict[str, str] = {}
    for part in {key.split(".")[0] for key, _, _ in rows if "." in key}:
        if isinstance(tree.get(part), dict):
            found |= {f"{part}.{name}": kind for name, kind in types_of(tree[part].get("_target_")).items()}
    return found


def _types_of_reader(file: Path) -> dict[str, str]:
    """Types of the settings of a corpus, which its reader takes."""
    tree = yaml.safe_load(file.read_text("utf-8")) or {}
    return types_of((tree.get("reader") or {}).get("_target_"))


def _body(file: Path) -> str:
    lines = file.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#")).strip()


def commands() -> str:
    """The page of every command: its help, and its own settings."""
    parts = [
        "# Commands", SAID,
        "Each command is `python scripts/NAME.py`, or `nmt NAME` where the package is installed. `--help` lists groups "
        "and values, `--cfg job` prints the composed settings without running, `-m` runs every combination of "
        "comma-separated choices.",
    ]  # fmt: skip
    for name, kinds in OF_COMMANDS.items():
        head, _, rows = read_settings(CONFIGS / f"{name}.yaml")
        raw = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text("utf-8"))
        usage = [line for line in raw["hydra"]["help"]["template"].splitlines() if "python scripts/" in line]
        example = "\n".join(line.strip() for line in usage)
        types = types_of_command(kinds)
        parts.append(f"## {name}\n\n{head}\n\n```text\n{example}\n```\n\n{table(rows, types)}")
    return "\n\n".join(parts) + "\n"


def pages() -> dict[Path, str]:
    """Every page that is written, or holds a table that is."""
    written = {
        DOCS / "reference" / "settings.md": configuration(),
        DOCS / "reference" / "commands.md": commands(),
    }
    holders = [DOCS.parent / "README.md", *sorted((DOCS / "results").glob("*.md"))]
    return written | {file: records.fill(file.read_text("utf-8")) for file in holders}


def main() -> None:
    differing = []
    for file, text in pages().items():
        if not file.exists() or file.read_text("utf-8") != text:
            differing.append(str(file.relative_to(DOCS.parent)))
            if "--check" not in sys.argv:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
    if "--check" in sys.argv and differing:
        sys.exit(f"out of date, run `make reference`: {', '.join(differing)}")
    print("\n".join(f"written: {each}" for each in differing) or "nothing has changed")


if __name__ == "__main__":
    main()
