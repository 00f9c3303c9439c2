"""Seconds of damaged files: see `tests/fuzz.py`."""

import re
import subprocess
import sys

import pytest

from tests.commands import ROOT, run_composed
from tests.fuzz import TARGETS


@pytest.mark.slow
def test_damaged_files_are_read_or_refused_in_one_line(tmp_path):
    data = ["data.num_train=100", "data.num_val=5", "data.num_test=5", "data.max_words=12"]
    sizes = ["model.size=16", "data.tokenizer.vocab_size=300", "trainer.max_epochs=2"]
    quiet = ["trainer.enable_progress_bar=false", "trainer.accelerator=cpu", "trainer.log_every_n_steps=1"]
    places = [f"run_dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path / 'cache'}"]
    assert run_composed("train", *data, *sizes, *quiet, *places).status == 0
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", str(tmp_path / "run"), "--seconds=1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    counts = re.findall(r"(\d+) read, (\d+) refused", ended.stdout)
    assert len(counts) == len(TARGETS)
    assert all(int(number) for pair in counts for number in pair), ended.stdout
