"""A broken or hostile run directory ends a command in one line; nothing in it is run."""

import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt.errors import UserError
from nmt.training import resume
from tests.commands import refused, run_composed
from tests.small import copied, digests, save_weights


def config(text: str | bytes) -> Callable[[Path], None]:
    content = text if isinstance(text, bytes) else text.encode()
    return lambda run: (run / "config.yaml").write_bytes(content)


def changed(old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / "config.yaml").read_text("utf-8")
        assert old in text
        (run / "config.yaml").write_text(text.replace(old, new), "utf-8")

    return change


def cut(name: str, length: int) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:length])


def packed(run: Path) -> None:
    with zipfile.ZipFile(run / CHECKPOINT) as archive:
        content = {each: archive.read(each) for each in archive.namelist()}
    with zipfile.ZipFile(run / CHECKPOINT, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in content.items():
            archive.writestr(name, each)


def weights(state, **others) -> Callable[[Path], None]:
    return lambda run: save_weights(run, state, **others)


def scaled(factor: float) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        state = torch.load(run / CHECKPOINT, weights_only=True)["state_dict"]
        save_weights(run, {name.removeprefix("translator."): value * factor for name, value in state.items()})

    return change


CHECKPOINT, MODEL = "checkpoints/best.ckpt", "tokenizer/joint.model"


RUNS = {
    "no configuration": (lambda run: (run / "config.yaml").unlink(), ["has no config.yaml"]),
    "no tokenizer": (lambda run: shutil.rmtree(run / "tokenizer"), ["src.model: cannot read the SentencePiece model"]),
    "no checkpoints": (lambda run: shutil.rmtree(run / "checkpoints"), ["best.ckpt: no such checkpoint"]),
    "empty yaml": (config(""), ["config.yaml is broken: Missing key model"]),
    "broken yaml": (config("model: [1,\nb: {"), ["config.yaml is not YAML", "line "]),
    "binary yaml": (config(b"\xff\xfe\0\1"), ["config.yaml is broken", "0xff"]),
    "yaml with nul": (config(b"model: a\0b"), ["config.yaml is not YAML"]),
    "yaml in a circle": (config("model: ${data}\ndata: ${model}"), ["may compute no setting: model=${data}"]),
    "no such class": (changed("nmt.models.EncoderDecoder", "nmt.models.Nothing"), ["nmt.models.Nothing"]),
    "another size": (changed("    size: 16", "    size: 8"), ["best.ckpt does not fit the configured model"]),
    "empty tokenizer": (cut(MODEL, 0), ["joint.model is broken or no SentencePiece model"]),
    "cut tokenizer": (cut(MODEL, 1000), ["joint.model is broken or no SentencePiece model"]),
    "cut checkpoint": (cut(CHECKPOINT, 1000), ["best.ckpt is broken or no checkpoint"]),
    "checkpoint of nothing": (weights({}), ["best.ckpt does not fit the configured model"]),
    "checkpoint of a tensor": (lambda run: torch.save(torch.zeros(3), run / CHECKPOINT), ["best.ckpt is broken"]),
    "diverged": (scaled(torch.nan), ["best.ckpt holds weights that are no numbers"]),
    "weights without bounds": (scaled(1e38), ["no finite log-probability"]),
    "packed checkpoint": (packed, ["best.ckpt is broken or no checkpoint"]),
    "data of null": (config("model: {_target_: x}\ndata: null"), ["config.yaml is broken: data holds no settings"]),
    "model without a class": (config("model: {}\ndata: {}"), ["config.yaml is broken"]),
}  # fmt: skip


@pytest.mark.parametrize("case", RUNS)
def test_translate_refuses_a_broken_run(case, untrained, tmp_path):
    damage, fragments = RUNS[case]
    run = copied(untrained, tmp_path)
    damage(run)
    before = digests(run)
    refused(run_composed("translate", f"run={run}", stdin=b"the cat sleeps .\n"), *fragments)
    assert digests(run) == before


class Payload:
    """What runs a command as it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def node(target: str) -> str:
    return f"{{_target_: {target}, _args_: ['touch MARKER']}}"


OURS, EVIL = "_target_: nmt.models.EncoderDecoder", node("os.system")


HOSTILE_CONFIGS = {
    "the model": f"model: {EVIL}",
    "nested": f"model: {{{OURS}, cell: {{a: [[{EVIL}]]}}}}",
    "interpolated": f"evil: {EVIL}\nmodel: {{{OURS}, cell: '${{evil}}'}}",
    "made later": f"model: {{{OURS}, cell: '${{oc.create:{{_target_: os.system}}}}'}}",
    "named elsewhere": "name: os.system\nmodel: " + node("'${name}'"),
    "python tag": "model: !!python/object/apply:os.system ['touch MARKER']",
}


@pytest.mark.parametrize("case", HOSTILE_CONFIGS)
def test_a_hostile_configuration_runs_nothing(case, untrained, tmp_path):
    run, marker = copied(untrained, tmp_path), tmp_path / "marker"
    references = {"interpolated": "model.cell=${evil}", "named elsewhere": "model._target_=${name}"}
    said = {key: f"may compute no setting: {setting}" for key, setting in references.items()}
    config(HOSTILE_CONFIGS[case].replace("MARKER", str(marker)) + "\ndata: {}\n")(run)
    refused(run_composed("translate", f"run={run}", stdin=b"a\n"), said.get(case, "system"))
    assert not marker.exists()


@pytest.mark.parametrize("kind", ["bare", "beside the weights"])
def test_a_hostile_checkpoint_runs_nothing(kind, untrained, tmp_path):
    run, marker = copied(untrained, tmp_path), tmp_path / "marker"
    pickle.loads(pickle.dumps(Payload(marker)))
    marker.unlink()  # so the payload works
    if kind == "bare":
        (run / CHECKPOINT).write_bytes(pickle.dumps(Payload(marker), protocol=2))
    else:
        save_weights(run, {}, hyperparameters=Payload(marker))
    refused(run_composed("translate", f"run={run}", stdin=b"a\n"), "best.ckpt is broken")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("a: [1,", "config.yaml is not YAML"),
        ("", "config.yaml is broken"),
        ("- 1", "config.yaml is broken"),
        ("model: {_target_: x}\ndata: {}", "config.yaml is broken: it has no optimizer, "),
        ("model: {_target_: x}\ndata: {tokenizer: a}", "config.yaml is broken: "),
        (
            "model: {_target_: x}\ndata: {tokenizer: {joint: [1]}}",
            "data.tokenizer.joint is not true or false",
        ),
    ],
)
def test_a_run_with_a_broken_configuration_does_not_go_on(text, fragment, untrained, tmp_path):
    run = copied(untrained, tmp_path)
    config(text)(run)
    refused(run_composed("train", f"resume={run}"), fragment)


@pytest.mark.parametrize("content", [b"hello, this is no checkpoint\n", b"", b"\x80\x02c", b"PK\x03\x04"])
def test_what_is_no_checkpoint_is_set_aside(content, untrained, tmp_path):
    run = copied(untrained, tmp_path)
    (run / "checkpoints" / "last.ckpt").write_bytes(content)
    # best.ckpt is tried next; it has only weights
    with pytest.raises(UserError, match=r"best\.ckpt has no"):
        resume.load_checkpoint(run)
    assert (run / "checkpoints" / "last.ckpt.broken").read_bytes() == content
