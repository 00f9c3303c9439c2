"""Export to a page that translates in the browser, without a server that computes.

The folder holds index.html, its scripts and style sheet (`nmt/page`), and for each run, in folders 0, 1, …: two ONNX
graphs, and run.json with the vocabulary and the texts of the page.
"""

import base64
import contextlib
import hashlib
import json
import logging
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from sentencepiece import sentencepiece_model_pb2 as formats
from torch import Tensor, nn

from nmt import kernels
from nmt.alignment import choose_units
from nmt.atomic import read_at_most, write_together
from nmt.attention import override_attention
from nmt.decoding import DecodingSettings
from nmt.errors import UserError
from nmt.export import onnx
from nmt.models.base import Translator
from nmt.plotting.sentence import drawable
from nmt.plotting.webpage import HELP, PAGE, group_data
from nmt.run.history import History
from nmt.run.paths import score_files
from nmt.run.run import Run
from nmt.run.scores import read_scores
from nmt.run.translating import MOST_PIECES

LIBRARY = "onnx"

log = logging.getLogger(__name__)

# onnxruntime-web, the digests (sha384) of its script and its WebAssembly, and their address without `runtime`
VERSION = "1.30.0"
RUNTIME = {
    "ort.wasm.bundle.min.mjs": "PLWz+nHEVHpjwBsO0YVdvQj6n5814Iv8E3b8FG0Rp/uIAtjFMCKOpP66iPzedrIG",
    "ort-wasm-simd-threaded.wasm": "vjBJ1z7qrhkTyYsNqKeF6c7N+nOJSU94czEo+tvZcu8G75JparGq9kB+kTnEUNVM",
}
HOST = "https://cdn.jsdelivr.net"
ADDRESS = f"{HOST}/npm/onnxruntime-web@{VERSION}/dist"
MOST_CHARACTERS = 1000  # of a text: the page reads no more
NUM_EXAMPLES, NUM_LENGTHS, NUM_CHECKED = 3, 12, 500  # lines of the validation text
MOST_VALIDATIONS = 20  # whose attention the page shows
USAGE = """Any file server can hand out this folder: a project's pages on a code host, or

    python -m http.server

in it, then open http://localhost:8000. The page makes no request after it has loaded."""


class ExplorableStep(nn.Module):
    """One step that gives every layer's and head's attention, which may be set by hand.

    Maps pieces [N], memory and state of N hypotheses, held [N, L, S] and is_held [N, L] to logits [N, V],
    weights [N, L, K, S] and the new state. Layer l of hypothesis n attends with held[n, l] if is_held[n, l].
    """

    def __init__(self, model: Translator, form: Any) -> None:
        super().__init__()
        self.model, self.form = model, form

    def forward(self, piece: Tensor, tensors: list[Tensor], held: Tensor, is_held: Tensor) -> list[Tensor]:
        decoder: Any = self.model.decoder
        memory, state = onnx.join_tensors(tensors, self.form)
        used: list[Tensor] = []

        def override(weights: Tensor, positions: Tensor) -> Tensor:
            layer, others = len(used), [1] * (weights.dim() - 2)
            row = held[:, layer].unflatten(-1, (*others, -1))  # [N, …, S]
            weights = torch.where(is_held[:, layer].unflatten(-1, (-1, *others, 1)), row, weights)
            used.append(weights.flatten(1, -2))  # [N, K, S], of one target position
            return weights

        with contextlib.ExitStack() as stack:
            for attention in decoder.cross_attentions:
                stack.enter_context(override_attention(attention, override))
            step = self.model.step(piece, state, memory)
        return [step.logits, torch.stack(used, dim=1), *onnx.split_tensors(step.state)[0]]


def check_runs(runs: Sequence[Run]) -> None:
    """Raise UserError if a run has no graph or vocabulary that the page can use."""
    for run in runs:
        if run.translator.reads_documents or not hasattr(run.translator, "decoder"):
            raise UserError(
                f"format=web: {run.translator.name} has no graph: `translate.py page=FILE` shows its attention"
            )
        for model in run.tokenizer.models:
            pieces(model, lowercase=run.tokenizer.lowercase)


def check_runtime(runtime: Path | None) -> None:
    """Raise UserError if `runtime` lacks a file of onnxruntime-web, or has that of another version."""
    for name, digest in RUNTIME.items():
        if runtime is not None and (not (runtime / name).is_file() or _digest(runtime / name) != digest):
            raise UserError(
                f"runtime={runtime} has no {name} of onnxruntime-web {VERSION}: "
                f"give the folder dist of that package (npm pack onnxruntime-web@{VERSION})"
            )


def write(
    runs: Sequence[Run],
    directory: Path,
    *,
    runtime: Path | None = None,
    decoding: DecodingSettings | None = None,
) -> str:
    """Write the page of one or several runs, which searches by `decoding`, else as each run was scored.

    `runtime` is a folder with the files of onnxruntime-web; without it the page names their address. Raises UserError
    as `check_runs` and `check_runtime` do.
    """
    check_runs(runs)
    check_runtime(runtime)
    for number, (run, name) in enumerate(zip(runs, _names(runs), strict=True)):
        (directory / str(number)).mkdir()
        _write_run(run, name, directory / str(number), decoding or run.decoding)
    write_page(directory, runtime)
    return USAGE


def write_page(directory: Path, runtime: Path | None) -> None:
    """Write all but the runs: index.html, the scripts, the style sheet, and onnxruntime-web if `runtime` has it.

    Files with this content are left as they are. Raises WriteError.
    """
    files = [file for file in PAGE.iterdir() if file.suffix in (".js", ".css")]
    if runtime is not None:
        files += [runtime / name for name in RUNTIME]
    contents = {directory / file.name: file.read_bytes() for file in files}
    address, host = (f"{ADDRESS}/", HOST) if runtime is None else ("", "")
    loaded = [{"url": address + name, "integrity": f"sha384-{digest}"} for name, digest in RUNTIME.items()]
    folders = [str(number) for number, _ in enumerate(directory.glob("*/run.json"))]
    settings = {"runtime": loaded, "runs": folders}
    page = (PAGE / "index.html").read_text("utf-8")
    page = page.replace("$SETTINGS", json.dumps(settings)).replace("$ORIGIN", host).replace("$HELP", HELP)
    contents[directory / "index.html"] = page.encode()
    if changed := {file: content for file, content in contents.items() if not _holds(file, content)}:
        write_together(changed)


def _holds(file: Path, content: bytes) -> bool:
    try:
        return read_at_most(file, len(content)) == content
    except (OSError, UserError):
        return False


def pieces(model: bytes, *, lowercase: bool) -> dict[str, Any]:
    """A SentencePiece model as `pieces.js` reads it. Raises UserError for a kind that it does not read."""
    proto: Any = formats.ModelProto.FromString(model)  # type: ignore[attr-defined]
    kinds = {1: "unigram", 2: "bpe"}
    rule, own = proto.normalizer_spec, proto.SentencePiece.Type
    others = {each.type for each in proto.pieces} - {own.NORMAL, own.UNKNOWN, own.CONTROL}
    is_usual = rule.escape_whitespaces and not proto.trainer_spec.treat_whitespace_as_suffix
    if proto.trainer_spec.model_type not in kinds or others or not is_usual:
        raise UserError(
            "format=web: the page reads SentencePiece models of type unigram and bpe, without pieces for bytes or "
            "symbols that a user defined: train with data.tokenizer.model=null and model_type=unigram or bpe"
        )
    return {
        "type": kinds[proto.trainer_spec.model_type],
        "pieces": [[each.piece, each.score, each.type] for each in proto.pieces],
        "charsmap": base64.b64encode(rule.precompiled_charsmap).decode(),
        "addDummyPrefix": rule.add_dummy_prefix,
        "removeExtraWhitespaces": rule.remove_extra_whitespaces,
        "lowercase": lowercase,
    }


def text_hint(lines: Sequence[str]) -> str:
    """A hint on the form of a text: lower case, and spaces before punctuation."""
    punctuated = [line for line in lines if line.rstrip()[-1:] in tuple(".!?")]
    is_lower = bool(lines) and sum(line == line.lower() for line in lines) > 0.9 * len(lines)
    is_spaced = sum(line.rstrip()[-2:-1] == " " for line in punctuated) > 0.9 * len(punctuated)
    forms = ["in lower case"] * is_lower + ["with a space before punctuation"] * is_spaced
    return f"It was trained on text {' and '.join(forms)}: write so too." if forms else ""


def _digest(file: Path) -> str:
    return base64.b64encode(hashlib.sha384(file.read_bytes()).digest()).decode()


def _names(runs: Sequence[Run]) -> list[str]:
    """Names that tell the runs apart: their kinds, with the directory and a number as needed."""
    names = [run.kind for run in runs]
    if len(set(names)) < len(names):
        names = [f"{run.kind}, {run.name}" for run in runs]
    return [f"{name} ({n + 1})" if names.count(name) > 1 else name for n, name in enumerate(names)]


def _write_run(run: Run, name: str, folder: Path, decoding: DecodingSettings) -> None:
    model, tokenizer = run.translator, run.tokenizer
    decoder: Any = model.decoder
    attentions = decoder.cross_attentions
    held = (torch.rand(2, len(attentions), 5), {0: onnx.DYNAMIC, 2: onnx.DYNAMIC})
    is_held = (torch.tensor([[True], [False]]).repeat(1, len(attentions)), {0: onnx.DYNAMIC})
    with kernels.using("plain"), torch.no_grad(), onnx.silence_tracing():
        if attentions:
            onnx.write_graphs(model, folder, ExplorableStep, {"held": held, "is_held": is_held})
        else:
            onnx.write_graphs(model, folder, onnx.StepGraph)
        onnx.check_graphs(model, folder)
    if decoding.sample:
        log.warning("decoding.sample=true is left out: the page searches greedily")
    if decoding.replace_unknown:
        log.warning("decoding.replace_unknown=true is left out: the page shows unknown pieces")
    lines = _validation_text(run)
    by_length = sorted(set(lines), key=lambda line: (len(line), line))
    config = {
        **{key: getattr(tokenizer, key) for key in ("pad_id", "bos_id", "eos_id")},
        "name": drawable(name),
        "languages": [drawable(each) for each in run.languages or ()],
        "score": _score(run),
        "hint": text_hint(lines),
        "examples": lines[:NUM_EXAMPLES],
        "growing": by_length[:: max(1, -(-len(by_length) // NUM_LENGTHS))],
        "unit": "pieces" if any(choose_units(line, "auto") == "mixed" for line in lines[:1]) else "words",
        "num_layers": len(attentions),
        "num_heads": max((getattr(each, "num_heads", 1) for each in attentions), default=0),
        "max_source_pieces": min(MOST_PIECES, model.max_length or MOST_PIECES),
        "max_target_pieces": model.max_length,
        "decoding": asdict(decoding.greedy if decoding.sample else decoding),
        "source": pieces(tokenizer.models[0], lowercase=tokenizer.lowercase),
        "target": None if tokenizer.joint else pieces(tokenizer.models[1], lowercase=tokenizer.lowercase),
        "history": _history(run),
    }
    (folder / "run.json").write_text(json.dumps(config, ensure_ascii=False), "utf-8")
    _compare_pieces(run, config["source"], lines[:NUM_CHECKED])


def _validation_text(run: Run) -> list[str]:
    """The sources of the validation text, as far as the page reads them.

    None, with a warning, if it cannot be read on this machine.
    """
    try:
        return [cut for line in run.split("val")["src"] if (cut := line[:MOST_CHARACTERS]).strip()]
    except UserError as error:
        log.warning("the page has no examples, as the validation text cannot be read: %s", error)
        return []


def _score(run: Run) -> str:
    """The test set's BLEU, as training wrote it."""
    try:
        score = read_scores(score_files(run.directory, "test")[0])["bleu"]["score"]
        return f"{score:.1f} BLEU on its test set"
    except (UserError, ValueError, KeyError, TypeError, OverflowError):
        return ""


def _history(run: Run) -> list[dict[str, Any]]:
    """Attention at the last validations; earlier ones are left out, as a page must load soon."""
    try:
        groups = History.load(run.directory / "alignments").groups()
    except (FileNotFoundError, UserError) as error:
        log.info("the page has no attention over time: %s", error)
        return []
    return [group_data(each._replace(sentences=each.sentences[-MOST_VALIDATIONS:])) for each in groups]


def _compare_pieces(run: Run, source: dict[str, Any], lines: list[str]) -> None:
    """Warn if the page's script cuts lines into other pieces than SentencePiece; needs Node.js."""
    if (node := shutil.which("node")) is None:
        log.info("node is not installed: the page's pieces are not compared with those of SentencePiece")
        return
    script = f"""{(PAGE / "pieces.js").read_text("utf-8")}
        const pieces = new Pieces({json.dumps(source)});
        console.log(JSON.stringify({json.dumps(lines)}.map(line => pieces.encode(line).ids)));"""
    command = [node, "--input-type=module", "-"]
    answer = subprocess.run(command, input=script.encode(), stdout=subprocess.PIPE, check=False)
    if answer.returncode:
        log.warning("node failed: the page's pieces are not compared with those of SentencePiece")
        return
    ours = [ids[:-1] for ids in run.tokenizer.encode_source(lines)]
    pairs = zip(lines, ours, json.loads(answer.stdout), strict=True)
    if others := [line for line, one, other in pairs if one != other]:
        log.warning("the page cuts %d of %d lines into other pieces: %s", len(others), len(lines), others[0])
