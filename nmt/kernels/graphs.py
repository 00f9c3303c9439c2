"""CUDA graphs: the work of hundreds of small kernels, recorded once per shape and launched by one call.

A training step of a small model launches a thousand kernels or more. On a GPU most of them take a few microseconds,
less than Python needs to launch a kernel. Launching a graph runs the recorded kernels again, on the numbers that are
in its memory at that time.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

from nmt.kernels.choice import fast

_MOST = 256  # shapes recorded at most


def records(x: Tensor) -> bool:
    """True if work with a parameter x should be recorded: on a GPU, for gradients, with the fast kernels.

    False with several processes, which nobody has tried, and during torch's anomaly detection.
    """
    alone = not torch.distributed.is_initialized() and not torch.is_anomaly_enabled()
    return x.is_cuda and alone and torch.is_grad_enabled() and fast(x)


class Recorder:
    """Calls a function on a GPU and computes its gradients by CUDA graphs, recorded once per shape of its arguments.

    For the same shapes the function must launch the same kernels: nothing on the CPU may depend on a number on the
    GPU, and decisions of Python stay as they were when the shape was recorded. Random numbers are the same as without
    a recorder. All recordings share memory; after many recordings, further shapes are not recorded. Raises
    RuntimeError if a function cannot be recorded, and in a backward pass if the recorder was called after its forward
    pass.
    """

    def __init__(self) -> None:
        self._recordings: dict[Hashable, _Recording] = {}
        self._memory: _Memory | None = None

    def __reduce__(self) -> tuple[type["Recorder"], tuple[()]]:
        return type(self), ()  # a copy of a model records anew

    def __call__(self, function: Callable[..., Any], parameters: Sequence[Tensor], *arguments: Any) -> Any:
        """Return `function(*arguments)`; arguments and results are plain containers of tensors and other values.

        Gradients reach the arguments and `parameters`, which must be everything else that the function learns from.
        """
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
        return tree_unflatten(_fill(recording.leaves, outputs), recording.tree)


def _tensors(leaves: Sequence[Any]) -> list[Tensor]:
    return [each for each in leaves if isinstance(each, Tensor)]


def _fill(leaves: Sequence[Any], tensors: Sequence[Tensor]) -> list[Any]:
    """Replace the tensors among the leaves by `tensors`."""
    rest = iter(tensors)
    return [next(rest) if isinstance(each, Tensor) else each for each in leaves]


class _Memory:
    """Memory that all recordings share, since only one recording at a time is between its two passes.

    passes: the number of forward and backward passes so far.
    """

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()
        self.passes = 0
        self._buffers: dict[Hashable, Tensor] = {}

    def like(self, what: str, tensors: Sequence[Tensor]) -> list[Tensor]:
        """A buffer in the shape of each tensor. All recordings use the same buffer if it is large enough."""
        return [self._place((what, number), each) for number, each in enumerate(tensors)]

    def _place(self, name: Hashable, tensor: Tensor) -> Tensor:
        key = (name, tensor.dtype)
        if key not in self._buffers or self._buffers[key].numel() < tensor.numel():
            self._buffers[key] = tensor.new_empty(tensor.numel())
        return self._buffers[key][: tensor.numel()].view(tensor.shape)


class _Recording:
    """The graphs of both passes of a function for one shape of its arguments, with their inputs and outputs.

    inputs: the tensors among the arguments.
    leaves, tree: the result of the function; outputs: its tensors.
    output_requires_grad: for each output, True if it has a gradient; grad_outputs: these gradients.
    input_requires_grad: for each input and parameter, True if it has a gradient; grads: these gradients.
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
        arguments = tree_unflatten(_fill(leaves, self.inputs), tree)
        sources = [*self.inputs, *parameters]
        random_state = torch.cuda.get_rng_state()
        torch.clear_autocast_cache()  # cached weights in another type do not exist when the graph is launched
        memory.stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(memory.stream):
                # Run once without recording: libraries initialise, and the shapes of the outputs become known.
                found, self.tree = tree_flatten(function(*arguments))
                outputs = _tensors(found)
                self.output_requires_grad = [each.requires_grad for each in outputs]
                self.outputs = memory.like("output", outputs)
                self.leaves = _fill(found, self.outputs)
                self.grad_outputs = memory.like("grad_output", self._differentiable(outputs))
                grads = self._gradients(outputs, sources)
                self.input_requires_grad = [each is not None for each in grads]
                self.grads = memory.like("grad", _tensors(grads))
                del found, outputs, grads
                torch.clear_autocast_cache()
                torch.cuda.empty_cache()  # recordings use another memory pool
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

    def _differentiable(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        return [each for each, has_grad in zip(outputs, self.output_requires_grad, strict=True) if has_grad]

    def _gradients(self, outputs: Sequence[Tensor], sources: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradient of each source, or None."""
        inputs = [each for each in sources if each.requires_grad]
        with torch.autocast("cuda", enabled=False):
            grads = iter(
                torch.autograd.grad(
                    self._differentiable(outputs), inputs, self.grad_outputs, allow_unused=True
                )
            )
        return [next(grads) if each.requires_grad else None for each in sources]

    @contextmanager
    def _capture(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Record the kernels launched inside the block; meanwhile other threads may use the GPU to load data."""
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
            *(
                each
                for each, has_grad in zip(outputs, recording.output_requires_grad, strict=True)
                if not has_grad
            )
        )
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        recording = ctx.recording
        if ctx.number != recording.memory.passes:
            raise RuntimeError("another pass came before this backward pass: kernels=plain takes any order")
        recording.memory.passes += 1  # a second backward pass is an error
        _copy(recording._differentiable(grad_outputs), recording.grad_outputs)
        recording.back.replay()
        grads = iter(recording.grads)
        return None, *(
            next(grads).clone() if has_grad else None for has_grad in recording.input_requires_grad
        )
