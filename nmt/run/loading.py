"""Read checkpoints, and load their weights, or the mean of several, into a translator."""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from nmt.config.build import check_buildable
from nmt.config.types import flat
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError, first_line
from nmt.models.base import Translator
from nmt.run.checkpoints import BROKEN
from nmt.run.model import build_translator

_MOST = 1_000_000  # the largest number in the model's settings


def read_checkpoint(file: Path) -> dict[str, Any]:
    """A checkpoint of tensors and plain containers. Raises an error of BROKEN, also if it unpacks to more than the
    file.

    A file may be packed, and containers may hold the same part many times: a checkpoint of this program does neither.
    """
    reader: Any = torch._C.PyTorchFileReader(str(file))
    sizes = {name: reader.get_record_size(name) for name in reader.get_all_records()}
    del reader
    if sum(sizes.values()) > file.stat().st_size:
        raise ValueError("it unpacks to more than it is")
    checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(checkpoint, dict):
        raise TypeError("it holds no dictionary")
    parts, room = [checkpoint], sizes["data.pkl"]  # a part takes at least a byte of it
    while parts:
        part = parts.pop()
        values = [*part, *part.values()] if isinstance(part, dict) else part
        if isinstance(part, dict | list | tuple | set):
            parts += values
            room -= len(values)
        if room < 0:
            raise ValueError("it unpacks to more than it is")
    return checkpoint


def is_plain(tensor: Any) -> bool:
    """True for a dense tensor in memory that holds all of its numbers."""
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
        return False
    return tensor.nbytes <= tensor.untyped_storage().nbytes()


def read_weights(file: Path, checkpoint: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
    """The translator's weights in a `checkpoint`, read from `file` if not given. Raises UserError naming it."""
    try:
        checkpoint = read_checkpoint(file) if checkpoint is None else checkpoint
        state = {
            name.removeprefix("translator."): value
            for name, value in checkpoint["state_dict"].items()
            if name.startswith("translator.")
        }
        for name, value in state.items():
            if not is_plain(value) or not value.is_floating_point():
                raise TypeError(f"{name} is no plain tensor of numbers")
    except BROKEN as error:
        reason = first_line(error)
        if isinstance(error, pickle.UnpicklingError):  # its message advises to load the file anyway
            reason = "it holds more than weights"
        raise UserError(
            f"{file} is broken or no checkpoint ({reason}): give another with checkpoint="
        ) from error
    return state


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
    weights = read_weights(files[0], checkpoint)
    with _no_more_than(weights, files[0]):
        translator = build_translator(config, tokenizer, trusted=trusted)
    if len(files) == 1:
        _load(translator, weights, files[0])
    else:
        load_average(translator, files)
    return translator


@contextmanager
def _no_more_than(weights: Mapping[str, Tensor], file: Path) -> Iterator[None]:
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


def load_weights(translator: Translator, file: Path) -> None:
    """Load only the weights of a checkpoint into a translator. Raises UserError naming the file."""
    _load(translator, read_weights(file), file)


def _load(translator: Translator, weights: Mapping[str, Tensor], file: Path) -> None:
    try:
        translator.load_state_dict(weights)
    except RuntimeError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:3])[:300]
        raise UserError(f"{file} does not fit the configured model: {reason}") from error
    if not all(torch.isfinite(weight).all() for weight in translator.parameters()):
        raise UserError(f"{file} holds weights that are no numbers, as after a training that diverged")


def load_average(translator: Translator, files: Sequence[Path]) -> None:
    """Load the mean of several checkpoints' weights (Vaswani et al. 2017, 6.1), taken in float64. Raises UserError."""
    sums: dict[str, Tensor | float] = {}
    for file in files:
        load_weights(translator, file)
        for name, value in translator.state_dict().items():
            sums[name] = sums.get(name, 0.0) + value.double()
    translator.load_state_dict({name: total / len(files) for name, total in sums.items()})
