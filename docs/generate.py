"""Write the generated pages: the reference of commands and settings, and the tables of results in README and docs.

    python docs/generate.py            writes them
    python docs/generate.py --check    says which differ from what is there, and fails

Settings come from `configs/` (values and comments) and from the constructors they name (types and ranges); results come
from the records in `docs/results/`, which commands wrote.
"""

import re
import sys
from pathlib import Path
from typing import Any

import yaml

import result_tables
from nmt.commands.composing import CONFIGS
from nmt.commands.reference import files_of, read_settings, say_value, types_of_choice, types_of_command
from nmt.config.commands import OF_COMMANDS
from nmt.config.types import GROUPS, ConfigGroup

DOCS = Path(__file__).parent
SAID = "<!-- Written by docs/generate.py: change what it reads, then run `make reference`. -->\n"


def table(rows: list[tuple[str, Any, str]], types: dict[str, str], anchors: dict[str, str]) -> str:
    lines = ["| key | default | type and range | meaning |", "|---|---|---|---|"]
    for key, value, comment in rows:
        group = re.fullmatch(r"\$\{(\w+)\}", str(value))
        if group and any(group[1] == each.name for each in GROUPS):
            comment = comment or f"the choice of `{group[1]}=`"
        default = "required" if value == "???" else f"`{say_value(value)}`"
        cells = (f'<a id="{anchors[key]}"></a>`{key}`', default, types.get(key, ""), comment)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def settings_pages() -> dict[str, str]:
    """The pages of settings by name: one per group, and an index of all."""
    written = {group.name: group_page(group) for group in GROUPS}
    rows = [f"| [{group.name}]({group.name}.md) | {group.what} |" for group in GROUPS]
    names = "\n".join(group.name for group in GROUPS)
    parts = [
        "# Settings", SAID,
        "Every setting is one dotted key on the command line: `model.dropout=0.2`. A choice of a group is "
        "`GROUP=CHOICE`: `attention=bahdanau`. A page per group has its choices with their keys, without the group's "
        "name. A default such as `${model.size}` is taken from another setting. The keys of `python scripts/train.py` "
        "itself are under [Commands](../commands.md).",
        "\n".join(["| group | what it sets |", "|---|---|", *rows]),
        f"```{{toctree}}\n:hidden:\n\n{names}\n```",
    ]  # fmt: skip
    return written | {"index": "\n\n".join(parts) + "\n"}


def group_page(group: ConfigGroup) -> str:
    """The choices of a group and their settings. A key has the anchor `GROUP.KEY`, later ones `CHOICE.KEY`."""
    parts, seen = [f"# {group.name}", SAID, f"{group.what[0].upper()}{group.what[1:]}."], set()
    for file in files_of(group.name):
        head, target, rows = read_settings(file)
        title = "Shared by all" if file.stem == "base" else f"`{group.name}={file.stem}`"
        if group.name == "experiment":
            parts.append(f"## {title}\n\n{head}\n\n```yaml\n{_body(file)}\n```")
            continue
        built = f" Builds `{target}`." if target else ""
        text = f"{head}{'' if head.endswith('.') or not head else '.'}{built}".strip()
        anchors = {key: f"{file.stem if key in seen else group.name}.{key}" for key, _, _ in rows}
        seen |= anchors.keys()
        parts += [
            f"## {title}",
            *([text] if text else []),
            *([table(rows, types_of_choice(file), anchors)] if rows else []),
        ]
    return "\n\n".join(parts) + "\n"


def _body(file: Path) -> str:
    lines = file.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#")).strip()


def commands() -> str:
    """The page of every command: its help, and its own settings."""
    parts = [
        "# Commands", SAID,
        "Each command is `python scripts/NAME.py`, or `nmt NAME` where the package is installed. `--help` lists groups "
        "and settings, `--help GROUP` the settings of each choice, `--cfg job` prints the composed settings without "
        "running, `-m` runs every combination of comma-separated choices.",
    ]  # fmt: skip
    for name, kinds in OF_COMMANDS.items():
        head, _, rows = read_settings(CONFIGS / f"{name}.yaml")
        raw = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text("utf-8"))
        usage = [line for line in raw["hydra"]["help"]["template"].splitlines() if "python scripts/" in line]
        example = "\n".join(line.strip() for line in usage)
        types, anchors = types_of_command(kinds), {key: f"{name}.{key}" for key, _, _ in rows}
        parts.append(f"## {name}\n\n{head}\n\n```text\n{example}\n```\n\n{table(rows, types, anchors)}")
    return "\n\n".join(parts) + "\n"


def pages() -> dict[Path, str]:
    """Every page that is written, or holds a table that is."""
    written = {
        **{DOCS / "reference" / "settings" / f"{name}.md": text for name, text in settings_pages().items()},
        DOCS / "reference" / "commands.md": commands(),
    }
    folders = ("results", "developing", "guides")
    holders = [
        DOCS.parent / "README.md",
        *(file for name in folders for file in sorted((DOCS / name).glob("*.md"))),
    ]
    return written | {file: result_tables.fill(file.read_text("utf-8")) for file in holders}


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
