"""Synthetic corpora of any size from the grammar's sentences, and the time and memory of a process."""

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.data import grammar
from nmt.errors import UserError
from nmt.training.memory import held_memory

_POOL = 20_000  # sentences of the grammar; a line has two
_SECONDS_A_SAMPLE = 0.05


class Start(NamedTuple):
    """The seconds of a process and its peak memory in bytes, None if the system does not report it."""

    seconds: float
    peak: int | None


def write_corpus(directory: Path, num_pairs: int, *, num_held_out: int = 300, seed: int = 1) -> int:
    """Write train, val and test in English and Vietnamese; returns the size of train in bytes.

    A line has two sentences drawn from a pool, so that millions of different lines take only seconds.
    """
    rng = random.Random(seed)
    pool = [grammar.sentence(rng, max_words=30) for _ in range(_POOL)]
    directory.mkdir(parents=True)
    for split, number in (("train", num_pairs), ("val", num_held_out), ("test", num_held_out)):
        paths = [directory / f"{split}.{lang}" for lang in grammar.LANGUAGES]
        with paths[0].open("w", encoding="utf-8") as en, paths[1].open("w", encoding="utf-8") as vi:
            for _ in range(number):
                one, other = rng.choice(pool), rng.choice(pool)
                en.write(f"{one.en} {other.en}\n")
                vi.write(f"{one.vi} {other.vi}\n")
    return sum((directory / f"train.{lang}").stat().st_size for lang in grammar.LANGUAGES)


def safe_environment() -> dict[str, str]:
    """The environment of this process, for Python processes that import nothing from the working directory."""
    return {**os.environ, "PYTHONSAFEPATH": "1"}


def watch(command: Sequence[str], what: str) -> Start:
    """Run a process to its end and measure it. Raises UserError with the last line of stderr if the process fails."""
    started, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=safe_environment())
        while process.poll() is None:
            peak = max(peak, held_memory(process.pid))
            time.sleep(_SECONDS_A_SAMPLE)
        seconds = time.perf_counter() - started
        said.seek(0)
        lines = said.read().strip().splitlines() if process.returncode else []
    if process.returncode:
        raise UserError(f"{what} failed: {lines[-1] if lines else process.returncode}")
    return Start(seconds, peak or None)
