"""Measure the preparation and the start of training for synthetic corpora of several sizes.

python scripts/workbench/corpora.py 100000 1000000 [KEY=VALUE …] [--output FILE.json]

KEY=VALUE: settings of benchmark.py, `data.tokenizer.vocab_size=4000` among them.
"""

import argparse
import itertools
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from nmt.atomic import json_text
from nmt.commands.benchmark import TRAIN, for_train, safe_environment
from nmt.commands.composing import compose
from nmt.commands.entry import errors_in_one_line
from nmt.comparison.tables import align_columns
from nmt.config.commands import check_settings
from nmt.config.types import key_of
from nmt.data import grammar
from nmt.data.datamodule import make_datamodule
from nmt.errors import UserError
from nmt.run.data import read_splits
from nmt.run.device import pick_device
from nmt.run.paths import write_atomically
from nmt.run.provenance import provenance
from nmt.training.memory import held_memory
from nmt.training.vocabulary import make_tokenizer

POOL = 20_000  # sentences of the grammar; a line has two
LOADED_BATCHES = 500
SECONDS_PER_SAMPLE = 0.05
STARTS: dict[str, list[str]] = {"first": [], "cached": [], "streamed": ["data.streaming=1000"]}
DATA = ("data.max_length", "data.max_ratio", "data.max_tokens")  # and data.tokenizer.*


class Start(NamedTuple):
    """The seconds of a process and its peak memory in bytes, None if the system does not report it."""

    seconds: float
    peak: int | None


def measure_corpora(sizes: Sequence[int], overrides: Sequence[str]) -> list[dict[str, Any]]:
    """The costs of a corpus of each size, with settings of benchmark.py. Raises UserError for other data."""
    cfg = compose("benchmark", list(overrides))
    check_settings(cfg, "benchmark")
    for key in map(key_of, overrides):
        if key.partition(".")[0] == "data" and not key.startswith((*DATA, "data.tokenizer.")):
            raise UserError(f"{key}= has no effect on synthetic corpora: leave it out")
    settings = [each for each in overrides if not each.startswith("data.")]
    return [corpus_cost(cfg, settings, size) for size in tqdm(sizes, unit="corpus", disable=None)]


def corpus_cost(cfg: DictConfig, settings: Sequence[str], num_pairs: int) -> dict[str, Any]:
    """Costs of a corpus of `num_pairs` lines: three starts (first, cached, streamed), and an epoch's batches."""
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        text_bytes = write_corpus(Path(directory) / "text", num_pairs)
        tokenizer = {key: value for key, value in cfg.data.tokenizer.items() if value is not None}
        data = [
            *("data=files", f"data.path={directory}/text", "data.src_lang=en", "data.tgt_lang=vi"),
            f"data.cache_dir={directory}/cache",
            *(f"{key}={OmegaConf.select(cfg, key)}" for key in DATA),
            *(f"data.tokenizer.{key}={value}" for key, value in tokenizer.items()),
        ]
        start = [*TRAIN, *for_train(cfg, settings), *data, f"log_dir={directory}/logs"]
        starts = {name: watch([*start, *more])._asdict() for name, more in STARTS.items()}
        gained = starts["first"]["seconds"] - starts["cached"]["seconds"]
        return {
            "num_pairs": num_pairs,
            "text_bytes": text_bytes,
            **starts,
            "prepared_pairs_per_second": num_pairs / max(gained, 1e-9),
            **batches_cost(compose("benchmark", data).data, cfg.seed),
        }


def batches_cost(cfg: DictConfig, seed: int) -> dict[str, float]:
    """Costs of an epoch's batches: number, seconds to form them, bytes per pair, and pairs loaded per second."""
    splits = read_splits(cfg, ("train", "val"))
    tokenizer = make_tokenizer(cfg, splits["train"])
    data = make_datamodule(cfg, splits, tokenizer, seed=seed, guided=False)
    sampler = data.sampler("train", shuffle=True)
    started = time.perf_counter()
    num_batches = len(sampler)
    dealt = time.perf_counter()
    chosen = itertools.islice(sampler, LOADED_BATCHES)
    loaded = sum(len(data.train.__getitems__(indices)) for indices in chosen)
    ended = time.perf_counter()
    return {
        "num_batches": num_batches,
        "deal_seconds": dealt - started,
        "sampler_bytes_per_pair": sampler.num_bytes() / len(sampler.src_lengths),
        "load_pairs_per_second": loaded / (ended - dealt),
    }


def write_corpus(directory: Path, num_pairs: int, *, num_held_out: int = 300) -> int:
    """Write train, val and test in English and Vietnamese; returns the size of train in bytes.

    A line has two sentences drawn from a pool, so that millions of different lines take only seconds.
    """
    rng = random.Random(1)
    pool = [grammar.sentence(rng, max_words=30) for _ in range(POOL)]
    directory.mkdir(parents=True)
    for split, number in (("train", num_pairs), ("val", num_held_out), ("test", num_held_out)):
        paths = [directory / f"{split}.{lang}" for lang in grammar.LANGUAGES]
        with paths[0].open("w", encoding="utf-8") as en, paths[1].open("w", encoding="utf-8") as vi:
            for _ in range(number):
                one, other = rng.choice(pool), rng.choice(pool)
                en.write(f"{one.en} {other.en}\n")
                vi.write(f"{one.vi} {other.vi}\n")
    return sum((directory / f"train.{lang}").stat().st_size for lang in grammar.LANGUAGES)


def watch(command: Sequence[str]) -> Start:
    """Run a process to its end and measure it. Raises UserError with the last line of stderr if the process fails."""
    started, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=safe_environment())
        while process.poll() is None:
            peak = max(peak, held_memory(process.pid))
            time.sleep(SECONDS_PER_SAMPLE)
        seconds = time.perf_counter() - started
        said.seek(0)
        lines = said.read().strip().splitlines() if process.returncode else []
    if process.returncode:
        raise UserError(f"scripts/train.py failed: {lines[-1] if lines else process.returncode}")
    return Start(seconds, peak or None)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """A column per corpus: the starts of training (first, cached, streamed), and the batches of an epoch."""
    lines = [["pairs", "text, MiB", *(f"{each} start, {unit}" for each in STARTS for unit in ("s", "MiB"))]]
    lines[0] += ["pairs prepared/s", "batches", "formed in, s", "bytes per pair", "pairs loaded/s"]
    for each in results:
        lines.append([f"{each['num_pairs']:,}", mebibytes(each["text_bytes"])])
        for start in STARTS:
            lines[-1] += [f"{each[start]['seconds']:.1f}", mebibytes(each[start]["peak"])]
        lines[-1] += [f"{each['prepared_pairs_per_second']:,.0f}", f"{each['num_batches']:,}"]
        lines[-1] += [f"{each['deal_seconds']:.2f}", f"{each['sampler_bytes_per_pair']:.0f}"]
        lines[-1] += [f"{each['load_pairs_per_second']:,.0f}"]
    return align_columns(list(zip(*lines, strict=True)))


def mebibytes(num_bytes: int | None) -> str:
    return "" if num_bytes is None else f"{num_bytes / 2**20:,.0f}"


def origin() -> dict[str, Any]:
    """The command of this process, the commit and the machine. Called before the work, as it has the machine's load."""
    script = Path(sys.argv[0]).name
    command = shlex.join(["python", f"scripts/workbench/{script}", *sys.argv[1:]])
    return provenance(command, pick_device("auto"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="SIZE or KEY=VALUE")
    parser.add_argument("--output", help="a .json file")
    given = parser.parse_intermixed_args()
    sizes = [int(each) for each in given.words if each.isdecimal()]
    with errors_in_one_line("benchmark"):
        before = origin()
        results = measure_corpora(sizes, [each for each in given.words if not each.isdecimal()])
        print(table(results))
        if given.output is not None:
            write_atomically(Path(given.output), json_text(before | {"corpora": results}))


if __name__ == "__main__":
    main()
