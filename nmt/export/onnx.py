"""Export to two ONNX graphs, the encoder and one decoder step, with which any ONNX runtime can decode."""

import contextlib
import io
import logging
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree

from nmt import kernels
from nmt.atomic import json_text
from nmt.attention.masks import padding_mask
from nmt.errors import UserError, first_line
from nmt.export.layouts import check_words
from nmt.models.base import Translator
from nmt.run.run import Run
from nmt.run.translating import MOST_PIECES

LIBRARY = "onnx"
SCRIPT = "translate.py"
TOLERANCE = 1e-4  # largest allowed difference of a logit or state between the graphs and the model
DYNAMIC = torch.export.Dim.DYNAMIC

log = logging.getLogger(__name__)


class EncoderGraph(nn.Module):
    """Maps padded source ids [B, S] to the decoder's memory and first state, as one list of tensors."""

    def __init__(self, model: Translator) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: Tensor) -> list[Tensor]:
        return split_tensors(_first(self.model, src))[0]


class StepGraph(nn.Module):
    """Maps the last pieces [B] and those tensors to logits [B, V], attention [B, S] if any, and the new state."""

    def __init__(self, model: Translator, form: "_Form") -> None:
        super().__init__()
        self.model, self.form = model, form

    def forward(self, piece: Tensor, tensors: list[Tensor]) -> list[Tensor]:
        memory, state = join_tensors(tensors, self.form)
        step = self.model.step(piece, state, memory, need_weights=self.model.has_attention)
        weights = [] if step.weights is None else [step.weights]
        return [step.logits, *weights, *split_tensors(step.state)[0]]


def write(run: Run, directory: Path) -> str:
    """Write encoder.onnx, step.onnx, config.json, the SentencePiece models and translate.py, which decodes with them.

    Raises UserError if the model cannot be written as a graph, or if the graphs compute something else.
    """
    model, tokenizer = run.translator, run.tokenizer
    if model.reads_documents or not hasattr(model, "encoder"):
        raise UserError(
            f"format=onnx: {model.name} reads documents, which has no graph: use format=safetensors"
        )
    check_words(run, "onnx")
    with kernels.using("plain"), torch.no_grad(), silence_tracing():
        write_graphs(model, directory, StepGraph)
        check_graphs(model, directory)
    tokenizer.save(directory)
    search = run.decoding
    if left_out := [
        f"decoding.{name}"
        for name in ("min_length", "min_length_ratio", "no_repeat_ngram_size")
        if getattr(search, name)
    ]:
        log.warning("%s is left out: %s searches without it", ", ".join(left_out), SCRIPT)
    limits = model.max_length, search.max_length and search.max_length + 1  # with the end of sentence
    config = {
        **{name: getattr(tokenizer, name) for name in ("joint", "lowercase", "pad_id", "bos_id", "eos_id")},
        "max_source_pieces": min(MOST_PIECES, model.max_length or MOST_PIECES),
        "max_target_pieces": min(filter(None, limits), default=None),  # null: any number
        "max_length_ratio": search.max_length_ratio,
        "max_length_extra": search.max_length_extra,
    }
    (directory / "config.json").write_text(json_text(config), "utf-8")
    shutil.copy(Path(__file__).with_name("onnx_translate.py"), directory / SCRIPT)
    return _usage(run)


def write_graphs(
    model: Translator,
    directory: Path,
    step: type[nn.Module],
    more: dict[str, tuple[Tensor, dict]] | None = None,
) -> None:
    """Write encoder.onnx, and step.onnx of the module `step`; `more` inputs of it by name: an example, its shape."""
    encoder: Any = model.encoder
    (tensors, form), (others, _) = (
        _after_steps(model, batch=batch, length=length, steps=steps)
        for batch, length, steps in ((2, 5, 3), (3, 7, 4))
    )
    # A dimension that differs between two input sizes is dynamic
    shapes = [
        {n: DYNAMIC for n in range(one.dim()) if one.size(n) != other.size(n)}
        for one, other in zip(tensors, others, strict=True)
    ]
    src = _source(model, 2, 5)
    num_memory = len(split_tensors(_first(model, src)[0])[0])
    names = [f"memory_{n}" for n in range(num_memory)]
    names += [f"state_{n}" for n in range(len(tensors) - num_memory)]
    new = [
        "logits",
        *(["weights"] if model.has_attention else []),
        *[f"new_{name}" for name in names[num_memory:]],
    ]
    with _layers_as_scans(encoder):
        _save(
            EncoderGraph(model),
            (src,),
            ({0: DYNAMIC, 1: DYNAMIC},),
            ["src"],
            names,
            directory / "encoder.onnx",
        )
    examples, their_shapes = zip(*more.values(), strict=True) if more else ((), ())
    _save(
        step(model, form),
        (torch.tensor([model.bos_id] * 2), tensors, *examples),
        ({0: DYNAMIC}, shapes, *their_shapes),
        ["piece", *names, *(more or ())],
        new,
        directory / "step.onnx",
    )


def _usage(run: Run) -> str:
    model, tokenizer = run.translator, run.tokenizer
    weights = "; `weights` [B, S] of the attention" if model.has_attention else ""
    ends = f"{tokenizer.eos_id} at the end, then padding of {tokenizer.pad_id}"
    rows = [
        ("graph", "reads", "gives"),
        ("---", "---", "---"),
        ("`encoder.onnx`", f"`src` [B, S]: piece ids, {ends}", "`memory_N`, `state_N`"),
        (
            "`step.onnx`",
            f"`piece` [B]: the last one, {tokenizer.bos_id} at first; `memory_N`, `state_N`",
            f"`logits` [B, V] of the next piece{weights}; `new_state_N`, the `state_N` of the next step",
        ),
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"""`pip install onnxruntime sentencepiece numpy`, then

    python {SCRIPT} < TEXT > TRANSLATIONS

translates each line by greedy search. `{SCRIPT}` is short and shows how to use the graphs: change it as you like.

{table}"""


_Form = tuple[Any, list[bool]]


def split_tensors(tree: Any) -> tuple[list[Tensor], _Form]:
    """The tensors of a plain container, and the form that `join_tensors` rebuilds it from."""
    leaves, form = pytree.tree_flatten(tree)
    return [each for each in leaves if each is not None], (form, [each is not None for each in leaves])


def join_tensors(tensors: list[Tensor], form: _Form) -> Any:
    left = iter(tensors)
    return pytree.tree_unflatten([next(left) if there else None for there in form[1]], form[0])


def _source(model: Translator, batch: int, length: int) -> Tensor:
    """Random piece ids [batch, length]; the last row is shorter than the others."""
    generator = torch.Generator().manual_seed(batch)
    specials = (model.pad_id, model.bos_id, model.eos_id)
    encoder: Any = model.encoder
    pieces = [n for n in range(encoder.embedding.num_embeddings) if n not in specials]
    src = torch.tensor(pieces)[torch.randint(len(pieces), (batch, length), generator=generator)]
    src[:, -1] = model.eos_id
    if batch > 1 and length > 2:
        src[-1, -2], src[-1, -1] = model.eos_id, model.pad_id
    return src


def _first(model: Translator, src: Tensor) -> tuple[Any, Any]:
    memory = model.encode(src, padding_mask(src, model.pad_id))
    return memory, model.init_state(memory)


def _after_steps(model: Translator, *, batch: int, length: int, steps: int) -> tuple[list[Tensor], _Form]:
    memory, state = _first(model, _source(model, batch, length))
    for _ in range(steps):
        state = model.step(torch.tensor([model.bos_id] * batch), state, memory).state
    tensors, form = split_tensors((memory, state))
    return [each.contiguous() for each in tensors], form


def _save(
    module: nn.Module, inputs: tuple, shapes: tuple, input_names: list[str], names: list[str], file: Path
) -> None:
    try:
        program = torch.export.export(module.eval(), inputs, dynamic_shapes=shapes)
        made = torch.onnx.export(
            program, input_names=input_names, output_names=names, dynamo=True, verbose=False
        )
    except Exception as error:  # anything the tracer cannot handle, also in a user's own model class
        raise UserError(
            f"format=onnx: this model cannot be written as a graph: {first_line(error)}"
        ) from error
    assert made is not None
    made.save(file)


def check_graphs(model: Translator, directory: Path) -> None:
    """Raise UserError unless graphs and model agree, for sizes other than those of the trace.

    A step that can be overridden is checked without that, and not its weights of each layer.
    """
    encoder, step = (onnxruntime.InferenceSession(directory / f"{name}.onnx") for name in ("encoder", "step"))
    inputs = [each.name for each in step.get_inputs()]
    names = [each.name.removeprefix("new_") for each in step.get_outputs()]
    free = {"held": np.float32, "is_held": np.bool_}
    for batch, length in ((1, 2), (1, 9), (4, 3), (5, 17)):
        src = _source(model, batch, min(length, model.max_length or length))
        memory, state = _first(model, src)
        outputs = [each.name for each in encoder.get_outputs()]
        known = dict(zip(outputs, encoder.run(None, {"src": src.numpy()}), strict=True))
        worst = _difference(list(known.values()), split_tensors((memory, state))[0])
        layers = len(model.decoder.cross_attentions)  # type: ignore[union-attr, arg-type]
        sizes = {"held": (batch, layers, src.size(1)), "is_held": (batch, layers)}
        known |= {name: np.zeros(sizes[name], kind) for name, kind in free.items() if name in inputs}
        for piece in (src % model.output.out_features).unbind(dim=1)[:4]:
            expected = model.step(piece, state, memory, need_weights=model.has_attention)
            state = expected.state
            known["piece"] = piece.numpy()
            known |= dict(zip(names, step.run(None, {name: known[name] for name in inputs}), strict=True))
            weights = {"weights": expected.weights} if "weights" in names and "held" not in inputs else {}
            states = [name for name in names if name.startswith("state_")]
            wanted = {
                "logits": expected.logits,
                **weights,
                **dict(zip(states, split_tensors(state)[0], strict=True)),
            }
            worst = max(worst, _difference([known[name] for name in wanted], list(wanted.values())))
        if not worst < TOLERANCE:
            raise UserError(f"the graphs compute something else than the model, by {worst:.1g}")


def _difference(found: list[Any], expected: list[Tensor]) -> float:
    return max(
        (float(np.abs(np.nan_to_num(one * 1.0) - np.nan_to_num(other.numpy() * 1.0)).max(initial=0)))
        for one, other in zip(found, expected, strict=True)
    )


@contextlib.contextmanager
def _layers_as_scans(encoder: nn.Module) -> Iterator[None]:
    """Inside the block, the encoder's recurrent layers run as `scan`, which supports any length; a traced loop would
    support only one."""
    layers = [each for each in encoder.modules() if hasattr(each, "num_states") and hasattr(each, "run")]
    scanned = [_scan(each) for each in layers]
    for layer, run in zip(layers, scanned, strict=True):
        layer.run = run
    try:
        yield
    finally:
        for layer in layers:
            del layer.run


class _Position(nn.Module):
    """A recurrent layer at one position: maps x [N, I] and states [N, H] to the output and the new states."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, *state: Tensor) -> list[Tensor]:
        output, state = self.layer.run(x.unsqueeze(1), state)  # type: ignore[operator]
        return [output.squeeze(1), *state]


def _scan(layer: Any) -> Any:
    sizes = [layer.input_size, *[layer.hidden_size] * layer.num_states]
    batch = [{0: DYNAMIC} for _ in sizes]
    shapes = (batch[0], tuple(batch[1:]))
    inputs = tuple(torch.zeros(2, size) for size in sizes)
    position = torch.export.export(_Position(layer), inputs, dynamic_shapes=shapes)
    graph = position.graph_module.forward  # a plain function of weights, x and states
    names = [name.removeprefix("layer.") for name in position.graph_signature.inputs_to_parameters.values()]

    def scanned(inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        weights = [layer.get_parameter(name) for name in names]

        def one(state: tuple[Tensor, ...], x: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            output, *state = graph(*weights, x, *state)
            return tuple(state), output.clone()

        # scan allows no two of its tensors to share memory
        state, outputs = scan(one, tuple(each.clone() for each in state), inputs.transpose(0, 1))
        return outputs.transpose(0, 1), state

    return scanned


@contextlib.contextmanager
def silence_tracing() -> Iterator[None]:
    """Silence the prints, logs and warnings of tracing."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
