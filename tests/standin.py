"""A device that no machine has: `standin`, whose tensors hold their numbers in the CPU's memory and are refused beside
the CPU's own, as a GPU's are. What runs through on it has every tensor where it belongs. It says nothing of speed, nor
of what a GPU's own kernels do.

Built on what torch has for devices that are written in Python (`torch.utils.backend_registration`). Once a process has
imported this module, the device stays.
"""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.strategies import SingleDeviceStrategy, StrategyRegistry
from torch import Tensor, nn
from torch.utils import backend_registration
from torch.utils._python_dispatch import return_and_correct_aliasing

NAME = "standin"
aten = torch.ops.aten


class _Backend(backend_registration._DummyBackendModule):
    """What torch asks the module of a device for."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
DEVICE = torch.device(NAME, 0)


class DeviceTensor(Tensor):
    """A tensor that says it is on DEVICE; `numbers` is the CPU's that stands behind it."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> "DeviceTensor":
        with torch.inference_mode(False):
            tensor: Any = Tensor._make_wrapper_subclass(
                cls,
                numbers.size(),
                strides=numbers.stride(),
                storage_offset=numbers.storage_offset(),
                dtype=numbers.dtype,
                device=DEVICE,
            )
        tensor.numbers = numbers
        return tensor

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(function, args, kwargs or {})

    # What torch does not ask a subclass for through the dispatcher.

    def tolist(self) -> Any:
        _count_wait()
        return self.numbers.tolist()

    def data_ptr(self) -> int:
        return self.numbers.data_ptr()

    def __format__(self, specification: str) -> str:
        _count_wait()
        return format(self.numbers, specification)

    def __repr__(self, **_: Any) -> str:
        return repr(self.numbers)

    def __reduce_ex__(self, protocol: Any) -> Any:  # a checkpoint is read to the CPU
        return self.numbers.__reduce_ex__(protocol)


# These take tensors of both devices, as on a GPU.
_MIXING = {
    aten.copy_.default,
    aten._to_copy.default,
    aten.index.Tensor,
    aten.index_put_.default,
    aten._index_put_impl_.default,
}
# Others take single numbers of the CPU beside the device's tensors, but these do not.
_JOINING = {aten.cat.default, aten.stack.default, aten._fused_adam_.default}
# The CPU waits for what these give, which depends on the numbers.
_WAITING = {aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default}
_waits = 0


def _count_wait() -> None:
    global _waits
    _waits += 1


def waits(work: Callable[[], Any]) -> int:
    """How often `work` waits for numbers of the device."""
    before = _waits
    work()
    return _waits - before


def _each(change: Callable[[Tensor], Any], x: Any) -> Any:
    """x with what `change` gives for its tensors, which may stand in lists."""
    if isinstance(x, Tensor):
        return change(x)
    if isinstance(x, list | tuple):
        return type(x)(_each(change, item) for item in x)
    return x


def _numbers(x: Any) -> Any:
    return x.numbers if isinstance(x, DeviceTensor) else x


def _compute(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if function is aten._copy_from.default:
        _numbers(args[1]).copy_(_numbers(args[0]))
        return args[1]
    tensors: list[Tensor] = []
    _each(tensors.append, (args, tuple(kwargs.values())))
    here = any(isinstance(x, DeviceTensor) for x in tensors)
    if here and function not in _MIXING:
        for x in tensors:
            if not isinstance(x, DeviceTensor) and (x.dim() > 0 or function in _JOINING):
                raise RuntimeError(f"{function} of tensors on {DEVICE} and on the CPU, {list(x.shape)}")
    place = kwargs.get("device")
    stays = here if place is None else torch.device(place).type == NAME
    if here and (function in _WAITING or not stays or _selects(function, args)):
        _count_wait()
    if place is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    plain = {name: _each(_numbers, value) for name, value in kwargs.items()}
    result = _FORMS.get(function, function)(*_each(_numbers, args), **plain)
    if function is aten.copy_.default:
        return args[0]
    if not stays:
        return result
    wrapped = _each(DeviceTensor, result)
    if place is not None:
        return wrapped
    result = return_and_correct_aliasing(function, args, kwargs, wrapped)
    for x in tensors:
        assert x.shape == _numbers(x).shape, f"{function} resizes"  # which a DeviceTensor does not follow
    return result


def _selects(function: Any, args: Any) -> bool:
    """Whether the size of what comes out depends on a mask."""
    return function is aten.index.Tensor and any(x is not None and x.dtype == torch.bool for x in args[1])


# What makes the first tensor there. Others do so by these, and fill it.
_library = torch.library.Library("aten", "IMPL")
for _name in (
    "empty.memory_format",
    "empty_strided",
    "arange",
    "arange.start",
    "arange.start_step",
    "_copy_from",
):
    _packet, _, _overload = _name.partition(".")
    _makes = getattr(getattr(aten, _packet), _overload or "default")
    _library.impl(_name, lambda *args, _f=_makes, **kwargs: _compute(_f, args, kwargs), "PrivateUse1")


# Cells of any device but the CPU are one product and one of these, which the CPU does not have.


def _gru_cell(
    from_input: Tensor, from_state: Tensor, h: Tensor, b: Tensor | None = None, c: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if b is not None and c is not None:
        from_input, from_state = from_input + b, from_state + c
    (r, z, n), (reset, update, new) = from_input.chunk(3, 1), from_state.chunk(3, 1)
    r, z = torch.sigmoid(r + reset), torch.sigmoid(z + update)
    n = torch.tanh(n + r * new)
    return n + z * (h - n), torch.cat((r, z, n, h, new), 1)


def _gru_cell_gradient(grad: Tensor, kept: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    r, z, n, h, new = kept.chunk(5, 1)
    of_n = grad * (1 - z) * (1 - n * n)
    of_r, of_z = of_n * new * r * (1 - r), grad * (h - n) * z * (1 - z)
    of_input, of_state = torch.cat((of_r, of_z, of_n), 1), torch.cat((of_r, of_z, of_n * r), 1)
    sums = (of_input.sum(0), of_state.sum(0)) if has_bias else (None, None)
    return of_input, of_state, grad * z, *sums


def _lstm_cell(
    from_input: Tensor, from_state: Tensor, c: Tensor, b: Tensor | None = None, d: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    gates = from_input + from_state
    if b is not None and d is not None:
        gates = gates + b + d
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * c + i * g
    return o * after.tanh(), after, torch.cat((i, f, g, o), 1)


def _lstm_cell_gradient(
    grad: Tensor | None, grad_c: Tensor | None, c: Tensor, after: Tensor, kept: Tensor, has_bias: bool
) -> tuple[Tensor | None, ...]:
    i, f, g, o = kept.chunk(4, 1)
    shown = after.tanh()
    grad = torch.zeros_like(c) if grad is None else grad
    of_c = grad * o * (1 - shown * shown) + (0 if grad_c is None else grad_c)
    gates = (
        of_c * g * i * (1 - i),
        of_c * c * f * (1 - f),
        of_c * i * (1 - g * g),
        grad * shown * o * (1 - o),
    )
    of_gates = torch.cat(gates, 1)
    return of_gates, of_c * f, of_gates.sum(0) if has_bias else None


_FORMS = {
    aten._thnn_fused_gru_cell.default: _gru_cell,
    aten._thnn_fused_gru_cell_backward.default: _gru_cell_gradient,
    aten._thnn_fused_lstm_cell.default: _lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_gradient,
}


# Modules move there by taking new tensors for their parameters; loading weights copies into those that are there.
_move = nn.Module._apply


def _apply(self: nn.Module, function: Any, recurse: bool = True) -> nn.Module:
    names: dict[int, list[str]] = {}
    for name, parameter in self.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        _move(self, function, recurse)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    for first, *others in names.values():  # tied weights stay tied, as on a real device
        for module, _, name in (other.rpartition(".") for other in others):
            self.get_submodule(module)._parameters[name] = self.get_parameter(first)
    return self


nn.Module._apply = _apply


class _OneDevice(Accelerator):
    """Lightning's view of it."""

    def setup_device(self, device: torch.device) -> None: ...
    def teardown(self) -> None: ...
    def get_device_stats(self, device: Any) -> dict[str, Any]:
        return {}

    @staticmethod
    def parse_devices(devices: Any) -> int:
        return 1

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        return [DEVICE]

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return NAME


AcceleratorRegistry.register(NAME, _OneDevice)
StrategyRegistry.register(NAME, SingleDeviceStrategy, device=DEVICE)
