"""The folder of configuration files, and configurations composed from them."""

from contextlib import nullcontext
from pathlib import Path

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

import nmt

_ROOT = Path(nmt.__file__).resolve().parent
# Beside the package in a checkout; inside the package in an installed wheel.
CONFIGS = next(
    each for each in (_ROOT.parent / "configs", _ROOT / "configs") if (each / "train.yaml").is_file()
)


def compose(config_name: str, overrides: list[str]) -> DictConfig:
    """The configuration of a command with these overrides."""
    at_work = GlobalHydra.instance().is_initialized()  # True inside a task: Hydra has the directory already
    with (
        nullcontext() if at_work else hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS))
    ):
        return hydra.compose(config_name, overrides=overrides)
