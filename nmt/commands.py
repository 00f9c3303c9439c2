"""What every script shares: Hydra's entry, and one clear line where the user can mend what went wrong."""

import difflib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nmt.errors import UserError

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def command(config_name: str) -> Callable[[Callable[[DictConfig], Any]], Callable[[], None]]:
    """Make `function(cfg)` a script composed from `configs/CONFIG_NAME.yaml`.

    A UserError, or a configuration that does not compose, ends with one line on standard error and exit
    status 1; a usage error of Hydra's own with 2; NMT_TRACEBACK=1 shows the traceback instead.
    """

    def decorate(function: Callable[[DictConfig], Any]) -> Callable[[], None]:
        @functools.wraps(function)
        def task(cfg: DictConfig) -> None:
            with _errors_in_one_line(config_name):
                function(cfg)

        @functools.wraps(function)
        def main() -> None:
            os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing; `explain` prints
            with _errors_in_one_line(config_name):
                hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(task)()

        return main

    return decorate


@contextmanager
def _errors_in_one_line(config_name: str) -> Iterator[None]:
    """Print what a user can mend and exit; anything else is a bug and keeps its traceback."""
    try:
        yield
    except (UserError, HydraException, OmegaConfBaseException) as error:
        if os.environ.get("NMT_TRACEBACK"):
            raise
        print(f"{Path(sys.argv[0]).name}: error: {explain(error, config_name)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read our output has gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def explain(error: BaseException, config_name: str) -> str:
    """One line for an error of configuration: what is wrong, the nearest key or the options there are."""
    text = str(error)
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(str(cause))
        cause = cause.__cause__
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown:
        key = unknown.group(1).split("@")[0]
        return f"unknown configuration key '{key}'{_nearest(key, config_name)}"
    missing_option = re.search(
        r"In '[^']*': Could not find '([^']+)'\s+Available options in '([^']+)':(.*)", text, re.S
    )
    if missing_option:
        name, group, options = missing_option.groups()
        return f"no such choice '{name}'; {group} is one of: {', '.join(sorted(options.split()))}"
    missing_option = re.search(
        r"Could not find '([^']+)'\s+Available options in '([^']+)':(.*?)(\n\n|\Z)", text, re.S
    )
    if missing_option:
        name, group, options = missing_option.groups()[:3]
        return f"no such choice '{name}'; {group} is one of: {', '.join(sorted(options.split()))}"
    mandatory = re.search(r"Missing mandatory value: (\S+)", " ".join(chain))
    if mandatory:
        return f"{mandatory.group(1)} is required: give {mandatory.group(1)}=VALUE"
    return " ".join(text.split())


def _nearest(key: str, config_name: str) -> str:
    """`; did you mean 'model.hidden_size'?` for the nearest key that exists, else an empty string."""
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        composed = hydra.compose(config_name, return_hydra_config=False)
    known = sorted(_keys(composed)) + sorted(path.name for path in CONFIGS.iterdir() if path.is_dir())
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if not close:  # the right name under the wrong parent
        close = [other for other in known if other.split(".")[-1] == key.split(".")[-1]][:1]
    return f"; did you mean '{close[0]}'?" if close else "; --help lists the keys"


def _keys(config: Any, prefix: str = "") -> list[str]:
    keys: list[str] = []
    if isinstance(config, DictConfig):
        for name in map(str, config):
            key = f"{prefix}{name}"
            keys.append(key)
            if not OmegaConf.is_missing(config, name) and not OmegaConf.is_interpolation(config, name):
                keys.extend(_keys(config[name], f"{key}."))
    return keys
