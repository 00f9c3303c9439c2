"""CUDA graphs: work of hundreds of small kernels, recorded once for each shape and launched as one.

A training step of a small model launches a thousand kernels and more. On a GPU most of them take a few microseconds,
less than Python needs to launch one. A graph is launched by one call: it runs the recorded kernels again, on the
numbers that are in its memory at that time.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

from nmt.kernels.choice import fast

_MOST = 256  # recordings


def records(x: Tensor) -> bool:
    """Whether work with x, numbers of a model, should be recorded: on a GPU, for gradients, with the fast kernels.

    Not with several processes, where nobody has tried it, and not while torch looks for anomalies.
    """
    alone = not torch.distributed.is_initialized() and not torch.is_anomaly_enabled()
    return x.is_cuda and alone and torch.is_grad_enabled() and fast(x)


class Recorder:
    """Calls a function on a GPU, and computes its gradients, by graphs: one pair for each shape of its arguments.

    For the same shapes the function must launch the same kernels: nothing on the CPU may depend on a number on the GPU,
    and what Python decides stays as it was when a shape was recorded. Random numbers are those that would be drawn
    without a recorder. All recordings share one memory; when there are many, further shapes are not recorded. Raises
    RuntimeError for a function that cannot be recorded, and in a backward pass if the recorder was called since its
    forward pass.
    """

    def __init__(self) -> None:
        self._recordings: dict[Hashable, _Recording] = {}
        self._memory: _Memory | None = None

    def __reduce__(self) -> tuple[type["Recorder"], tuple[()]]:
        return type(self), ()  # a copy of a model records anew

    def __call__(self, function: Callable[..., Any], parameters: Sequence[Tensor], *arguments: Any) -> Any:
        """`function(*arguments)`, plain containers of tensors and other values. Gradients reach the arguments and
        `parameters`, which are all else that the function learns from."""
        leaves, tree = tree_flatten(arguments)
        device = parameters[0].device.type
        key = (
            torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
            *((x.shape, x.dtype, x.requires_grad) if isinstance(x, Tensor) else x for x in leaves),
            *((x.data_ptr(), x.requires_grad) for x in parameters),
        )
        if key not in self._recordings:
            if len(self._recordings) == _MOST:
                return function(*arguments)
            self._memory = self._memory or _Memory()
            self._recordings[key] = _Recording(function, leaves, tree, parameters, self._memory)
        recording = self._recordings[key]
        outputs = _Replay.apply(recording, *_tensors(leaves), *parameters)
        return tree_unflatten(_filled(recording.leaves, outputs), recording.tree)


def _tensors(leaves: Sequence[Any]) -> list[Tensor]:
    return [each for each in leaves if isinstance(each, Tensor)]


def _filled(leaves: Sequence[Any], tensors: Sequence[Tensor]) -> list[Any]:
    """The leaves with `tensors` in the places of theirs."""
    rest = iter(tensors)
    return [next(rest) if isinstance(each, Tensor) else each for each in leaves]


class _Memory:
    """What all recordings share, since only one of them is between its two passes at a time.

    passes: the number of forward and backward passes so far.
    """

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()
        self.passes = 0
        self._buffers: dict[Hashable, Tensor] = {}

    def like(self, what: str, tensors: Sequence[Tensor]) -> list[Tensor]:
        """A place for the numbers of each tensor, the same one for all recordings that it is large enough for."""
        return [self._place((what, number), each) for number, each in enumerate(tensors)]

    def _place(self, name: Hashable, tensor: Tensor) -> Tensor:
        key = (name, tensor.dtype)
        if key not in self._buffers or self._buffers[key].numel() < tensor.numel():
            self._buffers[key] = tensor.new_empty(tensor.numel())
        return self._buffers[key][: tensor.numel()].view(tensor.shape)


class _Recording:
    """The graphs of both passes of a function for one shape of its arguments, and what they read and write.

    inputs: the tensors among the arguments. leaves, tree: what the function returns; outputs: its tensors. sloped:
    which of these have a gradient; slopes: those. learned: which of inputs and parameters have one; grads: those.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        leaves: Sequence[Any],
        tree: Any,
        parameters: Sequence[Tensor],
        memory: _Memory,
    ) -> None:
        self.memory = memory
        self.ahead, self.back = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        tensors = _tensors(leaves)
        self.inputs = [
            place.requires_grad_(tensor.requires_grad)
            for place, tensor in zip(memory.like("input", tensors), tensors, strict=True)
        ]
        _copy(tensors, self.inputs)
        arguments = tree_unflatten(_filled(leaves, self.inputs), tree)
        sources = [*self.inputs, *parameters]
        random_state = torch.cuda.get_rng_state()
        torch.clear_autocast_cache()  # a weight in another type is not there any more when the graph is launched again
        memory.stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(memory.stream):
                # Once without recording: libraries prepare themselves, and what comes out becomes known.
                found, self.tree = tree_flatten(function(*arguments))
                outputs = _tensors(found)
                self.sloped = [each.requires_grad for each in outputs]
                self.outputs = memory.like("output", outputs)
                self.leaves = _filled(found, self.outputs)
                self.slopes = memory.like("slope", self._sloped(outputs))
                grads = self._gradients(outputs, sources)
                self.learned = [each is not None for each in grads]
                self.grads = memory.like("grad", _tensors(grads))
                del found, outputs, grads
                torch.clear_autocast_cache()
                torch.cuda.empty_cache()  # recordings have their own memory
                self._record(function, arguments, sources)
        finally:
            torch.clear_autocast_cache()
            torch.cuda.current_stream().wait_stream(memory.stream)
            torch.cuda.set_rng_state(random_state)

    def _record(self, function: Callable[..., Any], arguments: Any, sources: Sequence[Tensor]) -> None:
        try:
            with self._capture(self.ahead):
                outputs = _tensors(tree_flatten(function(*arguments))[0])
                _copy(outputs, self.outputs)
            with self._capture(self.back):
                _copy(_tensors(self._gradients(outputs, sources)), self.grads)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise RuntimeError(
                f"this step could not be recorded as CUDA graphs, kernels=plain trains without them: {error}"
            ) from error

    def _sloped(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        return [each for each, sloped in zip(outputs, self.sloped, strict=True) if sloped]

    def _gradients(self, outputs: Sequence[Tensor], sources: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradient of each source, None where it has none."""
        learned = [each for each in sources if each.requires_grad]
        with torch.autocast("cuda", enabled=False):
            grads = iter(torch.autograd.grad(self._sloped(outputs), learned, self.slopes, allow_unused=True))
        return [next(grads) if each.requires_grad else None for each in sources]

    @contextmanager
    def _capture(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Records what is launched inside the block; other threads may use the GPU meanwhile, to load data."""
        graph.capture_begin(pool=self.memory.pool, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()


@torch.no_grad()
def _copy(tensors: Sequence[Tensor], places: Sequence[Tensor]) -> None:
    for tensor, place in zip(tensors, places, strict=True):
        place.copy_(tensor)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recording: _Recording, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.recording = recording
        recording.memory.passes += 1
        ctx.number = recording.memory.passes
        _copy(tensors[: len(recording.inputs)], recording.inputs)
        recording.ahead.replay()
        outputs = [each.clone() for each in recording.outputs]
        ctx.mark_non_differentiable(
            *(each for each, sloped in zip(outputs, recording.sloped, strict=True) if not sloped)
        )
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        recording = ctx.recording
        if ctx.number != recording.memory.passes:
            raise RuntimeError("another pass came before this backward pass: kernels=plain takes any order")
        recording.memory.passes += 1  # what this pass kept is used up
        _copy(recording._sloped(slopes), recording.slopes)
        recording.back.replay()
        grads = iter(recording.grads)
        return None, *(next(grads).clone() if learned else None for learned in recording.learned)
