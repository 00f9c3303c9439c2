"""Suggestions for unknown keys: by names in other programs, by spelling, by the choice that has the setting.

`other_names.txt` has a line per setting: the suggestion, a colon, and names in other programs. A line is used if the
command has the first setting of its suggestion.
"""

import functools
import re
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import yaml

from nmt.commands.composing import CONFIGS
from nmt.commands.reference import choices_of, groups_of, read_settings
from nmt.config.commands import OF_TRAINING


def suggest(key: str, command: str) -> str:
    """The end of an "unknown key" message: `; did you mean 'model.size'?`, or the choice that has this setting."""
    known = settings_of(command)
    parent, _, name = key.rpartition(".")
    if any(each.lstrip("+").startswith((f"{parent}._target_=", "trusted=")) for each in sys.argv):
        return f"; a class of your own gets it by +{key}=VALUE"
    if known.get(key):
        return f": it belongs to {_either(known[key])}: choose it too, or leave this out"
    others = dict(other_names(command))
    if called := get_close_matches(name.lower().replace("-", "_"), others, n=1, cutoff=0.85):
        setting, *note = others[called[0]].split(", ", 1)
        # Unless the group of the key has this name too
        if f"{parent}.{called[0]}" not in known or f"{parent}." in setting:
            return f"; did you mean '{setting}'{''.join(f', {each}' for each in note)}?"
    elsewhere = [each for each in known if each.rpartition(".")[2] == name and each != key]
    close = get_close_matches(key, elsewhere, n=1, cutoff=0) or get_close_matches(
        key.lower(), known, n=1, cutoff=0.87
    )
    if not close and key in settings_of("train"):
        return ": leave it out, it is a setting of train"
    if not close or close[0] == key:
        return f"; --help{f' {parent}' if parent in known else ''} lists the settings"
    brought = known[close[0]]
    belongs = (
        f" of {_either(brought)}" if 0 < len(brought) < len(choices_of(close[0].partition(".")[0])) else ""
    )
    return f"; did you mean '{close[0]}'{belongs}?"


def _either(choices: list[str]) -> str:
    return " or ".join(choices[:3]) + (" and others" if choices[3:] else "")


def other_names(command: str) -> Iterator[tuple[str, str]]:
    """Pairs of a name in other programs and the setting to suggest for it."""
    lines = Path(__file__).with_name("other_names.txt").read_text("utf-8").splitlines()
    # Reversed, so that the upper line wins if two have a name
    for right, _, names in (line.partition(": ") for line in reversed(lines)):
        if re.split("[=, ]", right)[0] in settings_of(command):
            yield from ((name, right) for name in names.split())


@functools.cache
def settings_of(command: str) -> dict[str, list[str]]:
    """The settings and groups of a command, with the choices that have the setting: `{"data.path": ["data=files"]}`."""
    found: dict[str, list[str]] = {key: [] for key, _, _ in read_settings(CONFIGS / f"{command}.yaml").rows}
    for group in groups_of(command):
        found[group] = []
        for choice in choices_of(group) if group not in ("experiment", "tuning") else ():
            for key in _keys(CONFIGS / group / f"{choice}.yaml"):
                if command != "evaluate" or key.split(".")[0] not in OF_TRAINING:
                    found.setdefault(f"{group}.{key}", []).append(f"{group}={choice}")
    return found


def _keys(file: Path) -> set[str]:
    defaults = (yaml.safe_load(file.read_text("utf-8")) or {}).get("defaults", [])
    inherited = (_keys(file.with_name(f"{each}.yaml")) for each in defaults if isinstance(each, str))
    return {key for key, _, _ in read_settings(file).rows}.union(*inherited)
