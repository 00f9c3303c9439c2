"""One-line messages for errors that the user can fix."""

import errno
import re
import sys

from hydra.errors import HydraException, InstantiationException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from nmt.commands.composing import CONFIGS
from nmt.commands.reference import groups_of
from nmt.commands.suggesting import suggest
from nmt.config.types import INTERNAL, key_of
from nmt.errors import UserError, WriteError, install

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # errors of writing only
# The extra that installs a choice
_EXTRAS = {"hydra/sweeper/optuna": "tuning", "hydra/launcher/submitit": "cluster"}
_GROUP_FAULT = "Config group override must be"  # start of a plain ValueError of Hydra


def can_be_fixed(error: Exception) -> bool:
    """True if an error comes from the user's input or the machine; other errors are bugs."""
    if isinstance(error, UserError | HydraException | OmegaConfBaseException | OSError):
        return True
    return isinstance(error, ValueError) and str(error).startswith(_GROUP_FAULT)


def explain_error(error: BaseException, config_name: str) -> str:
    """A one-line message for an error, with the nearest key or the options, if the error is about settings."""
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        if error.errno in _NO_ROOM:
            return str(WriteError(error.filename or "a file", error))
        return ": ".join(str(part) for part in (error.filename, error.strerror or text) if part)
    if isinstance(error, InstantiationException) and error.__cause__ is not None:
        return f"{text.rpartition('full_key: ')[2]}: {error.__cause__}"
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(str(cause))
        cause = cause.__cause__
    if text.startswith(_GROUP_FAULT):
        groups = [each for each in sys.argv[1:] if (CONFIGS / key_of(each)).is_dir()]
        given = " ".join(each for each in groups if re.fullmatch(r".*=(null|[\d.]+)", each))
        return f"a choice is the name of a file in its group's folder, not null or a number: {given}"
    if unknown := re.search(r"Could not override '([^']+)'", text):
        key = unknown.group(1).split("@")[0]
        if key in groups_of(config_name):
            return f"{key}= has no effect with what else is chosen: leave it out, or choose what uses it (--help)"
        return f"unknown configuration key '{key}'{suggest(key, config_name)}"
    options_of = r"Could not find '([^']+)'\s+Available options in '([^']+)':((?:\n\t\S+)*)"
    if missing_option := re.search(options_of, text):
        name, group, options = missing_option.groups()
        for choice, extra in _EXTRAS.items():
            if name.startswith(choice):
                return f"{name} needs an extra: {install(extra)}"
        options = [each for each in sorted(options.split()) if each not in INTERNAL]
        return f"no such choice '{name}'; {group} is one of: {', '.join(options)}"
    if reference := re.search(r"Interpolation key '([^']+)' not found\s+full_key: (\S+)", text):
        wanted, key = reference.groups()
        return (
            f"{key} takes its value from {wanted}, which the other choices do not have: leave out the choice of "
            f"{_group_of(key)}, or give {key}=VALUE"
        )
    if mandatory := re.search(r"Missing mandatory value: (\S+)", " ".join(chain)):
        return f"{mandatory.group(1)} is required: give {mandatory.group(1)}=VALUE"
    lacking = re.search(r"(?:Key '[^']+' is not in struct|Missing key \S+)\s+full_key: (\S+)", text)
    if lacking and (removals := [each for each in sys.argv[1:] if each.startswith("~")]):
        return f"nothing gives {lacking.group(1)}, which is needed: leave out {' '.join(removals)}"
    return _explain_override(error, text, chain[-1]) or " ".join(text.split())


def _explain_override(error: BaseException, text: str, reason: str) -> str | None:
    """A message if Hydra cannot read or apply KEY=VALUE, else None."""
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override} cannot be read: give KEY=VALUE, and in quotes a value with brackets or commas: "
            """KEY="'a,b'\""""
        )
    if text.startswith("Error merging override"):
        return f"{text.removeprefix('Error merging override ')} cannot be taken ({' '.join(reason.split())})"
    if text.startswith("Ambiguous value"):
        given = text.split("'")[1]
        key, _, values = given.partition("=")
        a_list = f", or give {key}=[{values}] for a list of them" if key == "logger" or "." in key else ""
        return f"{given}: add -m to run each of these values{a_list}"
    return None


def _group_of(key: str) -> str:
    """The config group of a key: `attention` for attention.size."""
    names = key.split(".")[:-1]
    return next((name for name in reversed(names) if (CONFIGS / name).is_dir()), names[0] if names else key)
