"""Build a translator, and load the weights of a checkpoint, or the mean of several, into it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from nmt.checkpoint import mean_weights, read_weights
from nmt.config.build import check_buildable
from nmt.config.types import flat
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.models.base import Translator
from nmt.run.model import build_translator

_MOST = 1_000_000  # the largest number in the model's settings


def load_translator(
    config: DictConfig,
    tokenizer: Tokenizer,
    files: Sequence[Path],
    *,
    trusted: Sequence[str] = (),
    checkpoint: Mapping[str, Any] | None = None,
) -> Translator:
    """The model of a run's `model` node, with the weights of a file, or the mean of several files' weights.

    checkpoint: the content of the first file, if it has been read. Raises UserError if the node needs other weights
    than the file's, before memory is taken for them.
    """
    check_buildable(config, "model", trusted)
    for key, value in flat(OmegaConf.to_container(config, resolve=True), "model").items():
        if isinstance(value, int) and abs(value) > _MOST:
            raise UserError(f"{key}={value}: a model has no layers of this size or number")
    weights = read_weights(files[0], checkpoint) if len(files) == 1 else mean_weights(files)
    with _limit_parameters(weights, files[0]):
        translator = build_translator(config, tokenizer, trusted=trusted)
    load_weights(translator, weights, files[0])
    return translator


@contextmanager
def _limit_parameters(weights: Mapping[str, Tensor], file: Path) -> Iterator[None]:
    """Raise UserError as soon as a model under construction has more parameters than the file could hold.

    The check comes first: parameters take memory only when they are filled.
    """
    room, built = file.stat().st_size, dict[int, nn.Parameter]()

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None:
            built[id(parameter)] = parameter
        # Twice as many: a tied parameter is made first, then replaced
        if len(built) > 2 * len(weights) + 16 or sum(map(Tensor.numel, built.values())) > room:
            raise UserError(f"{file} does not fit the configured model, which has more weights")

    hook = nn.modules.module.register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def load_weights(translator: Translator, weights: Mapping[str, Tensor], file: Path) -> None:
    """Load the weights of a checkpoint into a translator. Raises UserError naming its file."""
    try:
        translator.load_state_dict(weights)
    except RuntimeError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:3])[:300]
        raise UserError(f"{file} does not fit the configured model: {reason}") from error
