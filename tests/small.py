"""Small texts, vocabularies, settings and runs, shared by the tests."""

import contextlib
import hashlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from sentencepiece import SentencePieceTrainer

from nmt.checkpoint import write_checkpoint
from nmt.data.tokenizer import Tokenizer
from nmt.run.model import build_translator
from tests.commands import compose

SOURCES = ["a small house stands here", "the house", "", "here stands the small house"]
TARGETS = ["ở đây có một ngôi nhà nhỏ", "ngôi nhà", "", "ngôi nhà nhỏ ở đây"]

BPE: dict[str, Any] = {"model_type": "bpe", "joint": True, "character_coverage": 1.0}
SPECIAL_IDS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
# Settings of a model that is built and not trained
SMALL = ("encoder.size=8", "decoder.size=8", "model.size=8")
# Settings of a training that takes a second
SIZES = ["model.size=16", "data.tokenizer.vocab_size=300"]
FEW_PAIRS = ["data.num_train=100", "data.num_val=5", "data.num_test=5", "data.max_words=12"]
TINY = [
    *SIZES,
    *FEW_PAIRS,
    "trainer.max_epochs=2",
    "trainer.accelerator=cpu",
    "trainer.enable_progress_bar=false",
    "trainer.log_every_n_steps=1",
    "callbacks.alignments.num_sentences=1",
    "decoding=greedy",
]


def vocabulary(
    size: int = 20, *, separator_id: int | None = 4, pad_id: int = 0, bos_id: int = 2, eos_id: int = 3
) -> SimpleNamespace:
    """What a model asks of a tokenizer."""
    return SimpleNamespace(
        src_vocab_size=size,
        tgt_vocab_size=size,
        joint=True,
        separator_id=separator_id,
        pad_id=pad_id,
        bos_id=bos_id,
        eos_id=eos_id,
    )


def own_model(lines: list[str], **options: Any) -> bytes:
    """A SentencePiece model as a user may train it."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, hard_vocab_limit=False, **options
    )
    return model.getvalue()


def make_run(
    directory: Path, *overrides: str, vocab_size: int = 60, tokenizer: Tokenizer | None = None
) -> Path:
    """A run directory with random weights."""
    tokenizer = tokenizer or Tokenizer.train(SOURCES * 20, TARGETS * 20, **BPE, vocab_size=vocab_size)
    tokenizer.save(directory / "tokenizer")
    config = compose("train", *overrides)
    stored = {
        key: OmegaConf.to_container(config[key], resolve=True) for key in ("model", "decoding", "metrics")
    }
    model = OmegaConf.create(stored["model"])
    torch.manual_seed(1)
    translator = build_translator(model, tokenizer)
    state = {f"translator.{name}": value for name, value in translator.state_dict().items()}
    write_checkpoint({"state_dict": state}, directory / "checkpoints" / "best.ckpt")
    OmegaConf.save(OmegaConf.create(stored | {"data": {}}), directory / "config.yaml")
    return directory


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def save_weights(run: Path, state, **others) -> None:
    if isinstance(state, dict):
        state = {f"translator.{name}": value for name, value in state.items()}
    write_checkpoint({"state_dict": state, **others}, run / "checkpoints" / "best.ckpt")


def lay(folder: Path, files: dict[str, str | bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def copied(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "run"))


@contextlib.contextmanager
def full_disk(left: int) -> Iterator[None]:
    """No file grows beyond `left` bytes: writing fails as on a full disk."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def over(command: str, run: Path, folder: Path) -> list[str]:
    """The arguments that a command needs over one run."""
    lines = folder.parent / "lines"
    lines.write_text("the cat sleeps .\n" * 3)
    return {
        "translate": [f"run={run}", f"input={lines}"],
        "align": [f"run={run}", f"src={lines}", f"tgt={lines}"],
        "evaluate": [f"run={run}"],
        "compare": [f"runs={run}"],
    }[command]
