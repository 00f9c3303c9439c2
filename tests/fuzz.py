"""Fuzz targets: readers of files that a stranger may have sent get damaged copies of good ones.

    python -m tests.fuzz RUN_DIR [TARGET …] [--seconds 10] [--seed 1] [--case N]

A reading succeeds or raises UserError, within `CASE_SECONDS` and `MOST_BYTES` more memory than the process had. It
writes and removes nothing outside its own folder, starts no process and opens no connection. Case N of a seed is always
the same.
"""

import argparse
import faulthandler
import io
import itertools
import logging
import os
import random
import shutil
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import yaml

from nmt import Run, plotting
from nmt.data.cache import cached_dataset, cached_tokenizer
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.run.history import FILE, History
from nmt.run.paths import load_config
from nmt.training.resume import load_checkpoint

CASE_SECONDS = 20
MOST_BYTES = 2 * 2**30
ROWS = [(f"the cat {n} sleeps .", f"con mèo {n} ngủ .", "0-0") for n in range(20)]
KEY = "0" * 64
ODD = (None, True, -1, 0, 10**9, 2**70, float("nan"), float("inf"), "", "x" * 10_000, "../../../tmp/x",
       "${oc.env:HOME}", "/dev/zero", [], {}, [[]], {"_target_": "os.system", "command": "false"})  # fmt: skip


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A copy with one to four faults: bytes that are changed, cut out, repeated or put in, or no end."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place, length = rng.randrange(len(changed) + 1), min(int(rng.expovariate(1 / 16)) + 1, 4096)
        match rng.randrange(5):
            case 0 if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
            case 1:
                changed[place : place + length] = bytes([rng.choice((0, 0x7F, 0x80, 0xFF))]) * length
            case 2:
                del changed[place : place + length]
            case 3:
                changed[place:place] = rng.choice((changed[place : place + length], rng.randbytes(length)))
            case 4:
                del changed[place:]
    return bytes(changed)


def damaged_member(content: bytes, rng: random.Random) -> bytes:
    """A zip archive with one damaged file, whose checksum is right."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(written, "w") as new:
        chosen = rng.choice(old.namelist())
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, damaged(data, rng) if name == chosen else data)
    return written.getvalue()


def odd(value: Any, rng: random.Random) -> Any:
    """A value in place of another: of another type, size or range."""
    if isinstance(value, torch.Tensor) and rng.random() < 0.7:
        return rng.choice(
            (value[:0], value.double(), value.to(torch.complex64), value[..., None], torch.full_like(value, torch.nan)
             if value.is_floating_point() else value.bool(), torch.empty(2**20), torch.tensor(1))
        )  # fmt: skip
    return rng.choice(ODD)


def change_tree(tree: Any, rng: random.Random) -> Any:
    """A copy of nested dicts and lists, of which one value, anywhere, is odd, missing or has another key."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.1:
        return odd(tree, rng)
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    key, changed = rng.choice(list(keys)), tree.copy()
    match rng.randrange(8):
        case 0:
            del changed[key]
        case 1 if isinstance(changed, dict):
            changed[rng.choice((*ODD[:11], f"{key}x", "_args_", "_target_"))] = changed.pop(key)
        case _:
            changed[key] = change_tree(changed[key], rng)
    return changed


def fuzz_checkpoint(folder: Path, rng: random.Random) -> None:
    file = folder / "run/checkpoints/best.ckpt"
    content = file.read_bytes()
    match rng.randrange(3):
        case 0:
            content = damaged(content, rng)
        case 1:
            content = damaged_member(content, rng)
        case 2:
            changed = io.BytesIO()
            torch.save(change_tree(torch.load(file, weights_only=True), rng), changed)
            content = changed.getvalue()
    for other in file.parent.iterdir():
        other.write_bytes(content)
    if rng.random() < 0.5:
        load_checkpoint(folder / "run")
    else:
        Run.load(folder / "run").translate(["the cat sleeps ."])


def fuzz_tokenizer(folder: Path, rng: random.Random) -> None:
    file = folder / "run/tokenizer/joint.model"
    content = file.read_bytes()
    long = b"\n\x86\x9f\x49\n\x82\x9f\x49" + b"a" * 1_200_002  # a piece of 1.2 MB
    file.write_bytes(content + long if rng.random() < 0.05 else damaged(content, rng))
    tokenizer = Tokenizer.load(file.parent)
    tokenizer.target_pieces(tokenizer.encode_target(["con mèo ngủ .", "", "猫", "x" * 5000])[0])


def fuzz_configuration(folder: Path, rng: random.Random) -> None:
    file = folder / "run/config.yaml"
    if rng.random() < 0.5:
        file.write_bytes(damaged(file.read_bytes(), rng))
    else:
        tree = change_tree(yaml.safe_load(file.read_text("utf-8")), rng)
        file.write_text(yaml.safe_dump(tree, allow_unicode=True), "utf-8")
    load_config(folder / "run")
    Run.load(folder / "run").translate(["the cat sleeps ."])


def fuzz_cache(folder: Path, rng: random.Random) -> None:
    source = Tokenizer.load(folder / "run/tokenizer")

    def cached() -> None:
        found = cached_dataset(lambda: ROWS, key=KEY, split="train", cache_dir=folder / "cache")
        assert found.column_names == ["src", "tgt", "alignment"]
        list(found)
        cached_tokenizer(lambda: source, key=KEY, cache_dir=folder / "cache", lowercase=False)

    cached()
    files = [file for file in (folder / "cache").rglob("*") if file.is_file() and file.stat().st_size]
    file = rng.choice(files)
    file.write_bytes(damaged(file.read_bytes(), rng))
    cached()


def fuzz_history(folder: Path, rng: random.Random) -> None:
    file = folder / "run/alignments" / FILE
    content = file.read_bytes()
    match rng.randrange(3):
        case 0:
            content = damaged(content, rng)
        case 1:
            content = damaged_member(content, rng)
        case 2:
            with np.load(file) as stored:
                arrays = dict(stored)
            name = rng.choice(list(arrays))
            value = arrays.pop(name)
            others: list[Any] = [
                value[:0],
                value[None],
                value.astype(object),
                value.astype(str),
                np.array(3),
                np.zeros(2**20),
            ]
            arrays[rng.choice((name, name, name, f"{name}x"))] = rng.choice(others)
            changed = io.BytesIO()
            np.savez_compressed(changed, **arrays)
            content = changed.getvalue()
    good = History.load(file.parent)
    file.write_bytes(content)
    found = History.load(file.parent)
    plotting.alignment_page(good.after(found).groups(), title="after a damaged one")
    plotting.alignment_page(found.groups(), title="damaged")


TARGETS: dict[str, Callable[[Path, random.Random], None]] = {
    "checkpoint": fuzz_checkpoint,
    "tokenizer": fuzz_tokenizer,
    "configuration": fuzz_configuration,
    "cache": fuzz_cache,
    "history": fuzz_history,
}


def guard(scratch: Path) -> None:
    """End the process at the first write, removal, process or connection outside `scratch`."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in (
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.posix_spawn",
            "socket.connect",
            "pty.spawn",
        ):
            escaped = str(arguments[0])
        elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            escaped = arguments[0]
        elif event in ("os.rename", "os.link", "os.symlink"):
            escaped = arguments[1]
        elif event in ("os.remove", "os.rmdir") and arguments[1] != -1:
            return  # relative to a folder that is open: of shutil.rmtree, whose own event comes first
        elif event in ("os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"):
            escaped = arguments[0]
        else:
            return
        if isinstance(escaped, bytes | str | os.PathLike):
            place = Path(os.path.abspath(os.fsdecode(escaped)))
            if not place.is_relative_to(scratch) and place != Path(os.devnull):
                print(f"{event} outside: {escaped}", file=sys.stderr, flush=True)
                os._exit(1)

    sys.addaudithook(hook)


def limit_memory() -> None:
    if sys.platform == "linux":  # elsewhere address space is not limited in this way
        import resource

        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + MOST_BYTES, held + MOST_BYTES))


def fuzz(target: str, run: Path, scratch: Path, *, seconds: float, seed: int, only: int | None) -> None:
    """Read one damaged copy after another, and say how many were read and refused."""
    clock = time.monotonic()
    ended = {"read": 0, "refused": 0}
    for case in itertools.count() if only is None else [only]:
        if time.monotonic() - clock > seconds:
            break
        folder = scratch / f"case_{case}"
        shutil.copytree(run, folder / "run")
        print(f"\r{target}, seed {seed}, case {case}", end="", file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(CASE_SECONDS, exit=True)
        try:
            TARGETS[target](folder, random.Random(f"{seed} {case}"))
            ended["read"] += 1
        except UserError as error:
            ended["refused"] += 1
            if only is not None:
                print(f"\n{error}")
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(folder)
    print(file=sys.stderr)
    print(f"{target}, seed {seed}: {ended['read']} read, {ended['refused']} refused")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN_DIR", type=Path, help="a good run, which is copied")
    parser.add_argument(
        "targets", metavar="TARGET", nargs="*", help=f"of {', '.join(TARGETS)} (default: all)"
    )
    parser.add_argument("--seconds", type=float, default=10, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="this case alone, with its message")
    options = parser.parse_args()
    faulthandler.enable()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    datasets.disable_progress_bars()
    torch.set_num_threads(1)
    Run.load(options.run).translate(["the cat sleeps ."])  # what libraries write and keep at their first use
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = directory
        scratch = Path(directory).resolve()
        guard(scratch)
        limit_memory()
        for target in options.targets or TARGETS:
            fuzz(target, options.run, scratch, seconds=options.seconds, seed=options.seed, only=options.case)


if __name__ == "__main__":
    main()
