"""The reference of settings: default and meaning from `configs/`, type from the constructor; text of `--help`."""

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple, get_type_hints

import hydra
import yaml
from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from typing_extensions import is_typeddict

from nmt.commands.composing import CONFIGS
from nmt.config.commands import OF_COMMANDS
from nmt.config.types import GROUPS, INTERNAL
from nmt.errors import UserError
from nmt.errors import command as typed

# Keys that control composition and are no settings
_COMPOSING = {"defaults", "hydra", "_target_", "_partial_", "_convert_", "reader"}
_OF_A_MODEL = {"attention", "wiring", "normalizer", "content"}  # groups inside the choices of model


class Settings(NamedTuple):
    """A file of settings: its first comment, the target that it builds, and the settings (key, value, comment)."""

    head: str
    target: str | None
    rows: list[tuple[str, Any, str]]


def read_settings(file: Path) -> Settings:
    """The settings of a file. Keys are relative to its group, as `wandb.project` in `# @package logger.wandb`."""
    lines = file.read_text("utf-8").splitlines()
    head = " ".join(line[1:].strip() for line in lines if line.startswith("#") and "@package" not in line)
    comments: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in lines:
        if found := re.match(r"( *)([\w@/]+):(?: |$)", line):
            path = [each for each in path if each[0] < len(found[1])] + [(len(found[1]), found[2])]
            comments[".".join(name for _, name in path)] = line.partition(" # ")[2].strip()
        elif path and (more := re.match(r"\s+# (.*)", line)):
            comments[".".join(name for _, name in path)] += f" {more[1].strip()}"
    tree = yaml.safe_load("\n".join(lines)) or {}
    rows = [(f"{_package(file)}{key}", value, comments.get(key, "")) for key, value in _leaves(tree)]
    return Settings(head, tree.get("_target_"), rows)


def _package(file: Path) -> str:
    """The prefix of a file's keys in its group: `wandb.` if the file has `# @package logger.wandb`."""
    found = re.match(rf"# @package {file.parent.name}\.(\w+)", file.read_text("utf-8"))
    return f"{found[1]}." if found else ""


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if key in _COMPOSING:
            continue
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


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
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [
        f"{sign} {schema[key]:,}".removesuffix(".0").replace(f"{2**32:,}", "2^32")
        for key, sign in signs.items()
        if key in schema
    ]
    if name == "list" and "items" in schema:
        kind, _, limits = _say_schema(schema["items"]).partition(" ")
        name = f"list of {kind}{'' if kind.startswith('`') else 's'} {limits}".strip()
    return f"{name} {' and '.join(bounds)}".strip()


def flat_kinds(kinds: Any, prefix: str = "") -> dict[str, Any]:
    """The declared type of each setting by its dotted key."""
    found: dict[str, Any] = {}
    for name, kind in get_type_hints(kinds, include_extras=True).items():
        found |= flat_kinds(kind, f"{prefix}{name}.") if is_typeddict(kind) else {f"{prefix}{name}": kind}
    return found


def types_of_command(kinds: Any) -> dict[str, str]:
    """The types of a command's settings outside its groups."""
    return {key: say_type(kind) for key, kind in flat_kinds(kinds).items()}


def types_of_choice(file: Path) -> dict[str, str]:
    """The types of a choice's settings, from the arguments of its target and of the targets of its parts."""
    tree = yaml.safe_load(file.read_text("utf-8")) or {}
    found: dict[str, str] = {}
    for each in tree.get("defaults", []):
        found |= types_of_choice(file.with_name(f"{each}.yaml")) if isinstance(each, str) else {}
    parts = [(f"{name}.", part) for name, part in tree.items()]
    for prefix, part in ((_package(file), tree), ("", {"_target_": tree.get("reader")}), *parts):
        if isinstance(part, dict):
            found |= {f"{prefix}{name}": kind for name, kind in _types_of(part.get("_target_")).items()}
    declared = get_type_hints(OF_COMMANDS["train"]).get(file.parent.name)
    return found if declared is None else found | types_of_command(declared)


def _types_of(target: str | None) -> dict[str, str]:
    """The types of a target's arguments; none for targets outside this package, as of torch and Lightning."""
    if target is None or not target.startswith("nmt."):
        return {}
    parameters = inspect.signature(hydra.utils.get_object(target), eval_str=True).parameters
    return {
        name: say_type(each.annotation)
        for name, each in parameters.items()
        if each.annotation is not inspect.Parameter.empty
    }


def files_of(group: str) -> list[Path]:
    """The files of a group's choices, with the shared settings (`base.yaml`) first."""
    return sorted((CONFIGS / group).glob("*.yaml"), key=lambda file: (file.stem != "base", file.stem))


def choices_of(group: str) -> list[str]:
    """The choices of a group, without internal files."""
    return [file.stem for file in files_of(group) if file.stem not in INTERNAL]


def groups_of(command: str) -> list[str]:
    """The config groups of a command."""
    defaults = yaml.safe_load((CONFIGS / f"{command}.yaml").read_text("utf-8"))["defaults"]
    names = {name for each in defaults if isinstance(each, dict) for name in each}
    return [each.name for each in GROUPS if each.name in names | (_OF_A_MODEL if "model" in names else set())]


def help_of(command: str, words: Sequence[str]) -> str:
    """The help of a command: uses, groups and settings. With words, the settings of that group or about these words."""
    file = CONFIGS / f"{command}.yaml"
    groups = [each for each in GROUPS if each.name in groups_of(command)]
    if words:
        return _help_about(" ".join(words), command, groups_of(command))
    uses = yaml.safe_load(file.read_text("utf-8"))["hydra"]["help"]["template"]
    lines = [re.sub(r"python scripts/(\w+)\.py", lambda found: typed(found[1]), uses)]
    if groups:
        lines.append("Groups, chosen with GROUP=CHOICE (--help GROUP lists the settings of each choice):")
        lines += [
            _fill(f"  {each.name:<11} {each.what}: {', '.join(choices_of(each.name))}", 14) for each in groups
        ]
        lines.append("")
    types = types_of_command(OF_COMMANDS[command])
    lines.append("Settings, changed with KEY=VALUE:")
    lines += [_line(*row, types) for row in read_settings(file).rows]
    lines.append(
        "\n-m runs every combination of values separated by commas, --cfg job prints all settings without running,"
        "\n--help WORD lists the settings about a word."
    )
    return "\n".join(lines)


def _help_about(words: str, command: str, groups: Sequence[str]) -> str:
    lines = []
    group, _, choice = words.partition("=")
    is_group = group in groups and (not choice or choice in choices_of(group))
    own = CONFIGS / f"{command}.yaml"
    for file in [own, *(file for name in groups if name != "experiment" for file in files_of(name))]:
        name, read = file.parent.name if file != own else "", read_settings(file)
        if is_group and (name != group or choice not in ("", file.stem)):
            continue
        title = "" if file == own else f"{name}={file.stem}"
        rows = [(f"{name}.{key}" if name else key, value, said) for key, value, said in read.rows]
        if not is_group:
            rows = [row for row in rows if words.partition("=")[0].lower() in f"{row[0]} {row[2]}".lower()]
        if rows or is_group or words == file.stem:
            types = (
                {f"{name}.{key}": kind for key, kind in types_of_choice(file).items()}
                if name
                else types_of_command(OF_COMMANDS[command])
            )
            lines += ["", _fill(f"{title}  {read.head}", 2), *(_line(*row, types) for row in rows)]
    if not lines:
        raise UserError(
            f"--help {words}: no group and no setting of this command is about it; --help alone lists them"
        )
    return "\n".join(lines[1:])


def _line(key: str, value: Any, comment: str, types: dict[str, str]) -> str:
    said = "REQUIRED" if value == "???" else say_value(value)
    kind = types.get(key, "").replace("`", "")
    return _fill(f"  {f'{key}={said}':<30} {comment}{f' ({kind})' if kind else ''}", 33)


def say_value(value: Any) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=1000)
        .split("\n...")[0]
        .strip()
    )


def _fill(line: str, indent: int) -> str:
    return fill(line, 110, subsequent_indent=" " * indent)
