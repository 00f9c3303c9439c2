"""A run that starts from another has its weights and its tokenizer."""

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from nmt.config.commands import check_settings
from tests.commands import refused, run_composed

TINY = [
    *("data.num_train=100", "data.num_val=5", "data.num_test=5", "data.max_words=12", "decoding=greedy"),
    *("trainer.max_epochs=1", "trainer.log_every_n_steps=1", "trainer.accelerator=cpu"),
    *("trainer.enable_progress_bar=false", "callbacks.alignments=null"),
]


@pytest.fixture(scope="module")
def origin(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("origin")
    of_its_own = ["data.tokenizer.vocab_size=300", "data.tokenizer.lowercase=true", "model.size=16"]
    ended = run_composed(
        "train", *TINY, *of_its_own, f"run_dir={directory}", f"data.cache_dir={directory}/cache"
    )
    assert ended.status == 0, ended.err
    return directory


def start(origin: Path, run_dir: Path, *overrides: str):
    places = [f"start_from={origin}", f"run_dir={run_dir}", f"data.cache_dir={origin}/cache"]
    return run_composed("train", *TINY, *places, *overrides)


def test_a_run_begins_with_the_weights_and_the_tokenizer_of_another(origin, tmp_path, caplog):
    """At a rate that changes next to nothing, they are its own at the end, of other text and with another seed."""
    caplog.set_level("INFO")
    ended = start(
        *(origin, tmp_path, "model.size=16", "optimizer.lr=1e-12", "seed=2", "data.tokenizer.sampling=0.1"),
        "attention.temperature=2",
    )
    assert ended.status == 0, ended.err
    assert "the model differs from that of start_from: decoder.attention.temperature 1.0 → 2" in caplog.text
    [before, after] = [
        torch.load(each / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
        for each in (origin, tmp_path)
    ]
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], rtol=0, atol=1e-9) for name in before)
    for file in (origin / "tokenizer").iterdir():
        assert (tmp_path / "tokenizer" / file.name).read_bytes() == file.read_bytes()
    stored = OmegaConf.load(tmp_path / "config.yaml")
    check_settings(stored, "train")  # as when the run is resumed
    tokenizer = stored.data.tokenizer
    assert (tokenizer.vocab_size, tokenizer.lowercase, tokenizer.sampling) == (300, True, 0.1)


def test_a_run_cannot_start_from_another_model_or_choose_the_vocabulary(origin, tmp_path):
    refused(
        start(origin, tmp_path),
        "does not fit the configured model",
        "size mismatch for encoder.embedding.weight",
    )
    vocabulary = "data.tokenizer.vocab_size=200"
    refused(start(origin, tmp_path, vocabulary), "data.tokenizer.vocab_size has no effect with start_from=")
    refused(start(tmp_path / "nothing", tmp_path), "is not a run directory")
