"""Preparation of the command line for Hydra: options, duplicate settings, and quotes around text."""

import functools
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from nmt.commands.composing import CONFIGS
from nmt.commands.reference import choices_of, flat_kinds
from nmt.commands.suggesting import settings_of, suggest
from nmt.config.commands import OF_COMMANDS
from nmt.config.types import INTERNAL, key_of
from nmt.environment import launch_rank
from nmt.errors import UserError

HELP = ("--help", "-h")
_FORMS = ("job", "hydra", "all")  # of --cfg


def prepare_arguments(arguments: Sequence[str], command: str) -> list[str]:
    """The arguments for Hydra: options, then settings with text in quotes. Raises UserError for invalid arguments."""
    for text in (*arguments, os.getcwd()):
        if re.search("[\ud800-\udfff]", text):  # surrogates: bytes that Python could not decode
            raise UserError(
                f"{text} is not UTF-8: give it another name, or set PYTHONUTF8=1 if the terminal is at fault"
            )
    options, settings = _options(arguments, command)
    settings = [each.lstrip("+") if (CONFIGS / key_of(each)).is_dir() else each for each in settings]
    for each in settings:
        key, _, value = each.partition("=")
        if not key_of(each) or (key == each and each[0] != "~"):
            raise UserError(f"{each}: give settings as KEY=VALUE, without spaces{_hint(each, command)}")
        if value in INTERNAL and (CONFIGS / key_of(each)).is_dir():
            raise UserError(f"{each}: give one of {', '.join(choices_of(key_of(each)))}")
        if re.match(r"\+*hydra\.(?!launcher|sweeper|verbose)", key) and launch_rank() == 0:
            raise UserError(
                f"{each} has no effect in this program: give run_dir=DIR or log_dir=DIR for places"
            )
    if twice := [key for key, number in Counter(map(key_of, settings)).items() if number > 1]:
        raise UserError(f"{twice[0]} is given twice: leave one of them out")
    sweeps, texts = bool({"-m", "--multirun"} & set(options)), text_settings(command)
    return options + [quote_argument(each, texts, sweeps=sweeps) for each in settings]


def _options(arguments: Sequence[str], command: str) -> tuple[list[str], list[str]]:
    """The options, followed by their values, and all other arguments."""
    options, settings = {}, []
    waiting = iter(arguments)
    for each in waiting:
        name, equals, value = each.partition("=")
        if not name.startswith("-"):
            settings.append(each)
        elif each in ("-m", "--multirun", "--resolve"):
            options[name] = [name]
        elif name in ("--cfg", "--config-dir"):
            options[name] = [name, value if equals else next(waiting, "")]
        else:
            raise UserError(
                f"{each}: settings have no dashes: give KEY=VALUE{_hint(name.strip('-'), command)}"
            )
    form = options.get("--cfg", ["", "job"])[1]
    if form not in _FORMS:
        raise UserError(
            f"--cfg {form}: give --cfg job to print this command's settings, or one of {', '.join(_FORMS)}"
        )
    for one, other in ("-m", "--cfg"), ("--multirun", "--cfg"):
        if one in options and other in options:
            raise UserError(f"{one} and {other} do not go together: give one of them")
    if "--resolve" in options and "--cfg" not in options:
        raise UserError("--resolve has no effect without --cfg job: leave it out")
    return [each for parts in options.values() for each in parts], settings


def _hint(word: str, command: str) -> str:
    """The end of a message about a word that is no setting: `: run=DIR` for a run directory, else a suggestion."""
    if os.path.isfile(os.path.join(word, "config.yaml")):
        key = {"train": "resume", "compare": "runs"}.get(command, "run")
        return f": {key}={word}"
    key = re.split("[:= ]", word)[0].replace("-", "_")
    return f": {key}=VALUE" if key in settings_of(command) else suggest(key, command)


def text_settings(command: str) -> dict[str, set[type]]:
    """The settings of a command that take text, a list of text, or both: `{"run": {str, list}, "name": {str}}`."""
    kinds = flat_kinds(OF_COMMANDS[command])
    return {key: found for key, kind in kinds.items() if (found := _text_kinds(kind))}


def _text_kinds(kind: Any) -> set[type]:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _text_kinds(parts[0])
    if origin is list:
        return {list} if _text_kinds(parts[0]) else set()
    if origin in (Union, UnionType):
        return set().union(*map(_text_kinds, parts))
    return {str} if kind is str else set()


def quote_argument(argument: str, texts: Mapping[str, Collection[type]], *, sweeps: bool = False) -> str:
    """KEY=VALUE with quotes around text that Hydra would not read literally.

    texts: the settings that take text, a list of text, or both. In a sweep a comma separates values.
    """
    key, equals, value = argument.partition("=")
    kinds = texts.get(key_of(key), ())
    parsed = parse_setting(argument)
    if not equals or value in ("", "null") or (parsed and (not kinds or value[0] in "'\"")):
        return argument
    if list in kinds and (inner := re.fullmatch(r"\[([^\[\]{}'\"]+)\]", value)):
        return f"{key}=[{_quote_all(inner[1])}]"
    if kinds == {list} or (value[0] in "[{" and (parsed or not kinds)):
        return argument
    if sweeps:
        return (
            argument
            if parsed and parsed.is_sweep_override() and "(" in value
            else f"{key}={_quote_all(value)}"
        )
    if "," in value and list in kinds and not os.path.exists(value):  # Path raises an error for a long list
        return f"{key}=[{_quote_all(value)}]"
    return f"{key}={_quote(value)}"


def _quote_all(values: str) -> str:
    return ",".join(_quote(each.strip()) for each in values.split(","))


def _quote(text: str) -> str:
    """Quote text for Hydra: escape quotes, double backslashes before a quote or the end, expand ~."""
    text = re.sub(
        r"(\\*)('|\Z)", lambda found: 2 * found[1] + ("\\'" if found[2] else ""), os.path.expanduser(text)
    )
    return f"'{text}'"


def parse_setting(argument: str) -> Override | None:
    """An argument as Hydra reads it; None if it cannot."""
    try:
        return _parser().parse_override(argument)
    except HydraException:
        return None


@functools.cache
def _parser() -> OverridesParser:
    return OverridesParser.create()
