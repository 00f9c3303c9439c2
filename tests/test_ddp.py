"""Two processes train as one does with twice the batches, write as one, and end together."""

import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import lightning as L
import pytest
import torch

from nmt import distributed
from nmt.commands.run_names import agree_on, make_run_name
from nmt.data import grammar
from nmt.data.batching import TokenBatchSampler
from nmt.errors import UserError
from nmt.layers.dropout import Dropout
from nmt.run.paths import load_config
from nmt.training import launch, resume
from nmt.training.callbacks import Interrupted
from nmt.training.module import TranslationModule
from tests.commands import ROOT, free_port, last_of_each
from tests.test_resume import after, assert_same_run, compose, scalars, train_module

COMMON = [
    "name=small",
    "data.num_train=220",
    "data.num_val=12",
    "data.num_test=12",
    "data.max_words=6",
    "data.max_tokens=220",
    "data.tokenizer.vocab_size=250",
    "model.size=24",
    "optimizer.lr=0.02",
    "scheduler=constant",
    "trainer.accelerator=cpu",
    "trainer.enable_progress_bar=false",
    "callbacks=minimal",
]
SMALL = [
    *COMMON,
    "model.dropout=0",
    "trainer.max_epochs=6",
    "trainer.log_every_n_steps=3",
    "trainer.precision=64-true",  # so that sums in another order differ by nothing that grows
]
DDP = ["trainer=ddp", "trainer.devices=2"]
HANGS = 300  # seconds after which processes hang, and do not only wait for a busy machine


def in_processes(function: Callable[[], None], log: Path, number: int = 2) -> list[int]:
    """Exit status of each of `number` processes that find what torchrun gives its own."""
    port = free_port()

    def task(rank: int) -> None:
        torch.set_num_threads(1)  # as in test_resume.py
        if number > 1:
            os.environ.update(
                {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(number), "GROUP_RANK": "0"},
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                TORCHELASTIC_RUN_ID="test",
                TORCHELASTIC_USE_AGENT_STORE="False",
            )
        sys.stdout = sys.stderr = log.open("a", buffering=1)
        faulthandler.enable(sys.stderr)
        train_module.silence_warnings()
        try:
            function()
        except Interrupted as interrupted:
            sys.exit(128 + interrupted.number)

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=task, args=(rank,)) for rank in range(number)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=HANGS)
        if process.is_alive():
            os.kill(process.pid, signal.SIGABRT)
            process.join()
    return [process.exitcode for process in processes]


def train(
    run_dir: Path, overrides: list[str], *, number: int, before: Callable[[], None] = lambda: None
) -> list[int]:
    def function() -> None:
        before()
        cache = run_dir.parent / "cache"
        train_module.train(compose([*overrides, f"run_dir={run_dir}", f"data.cache_dir={cache}"]))
        assert not torch.distributed.is_initialized()  # each has left the group before it exits

    return in_processes(function, log_file(run_dir), number)


def go_on(run_dir: Path, *overrides: str, number: int) -> list[int]:
    def function() -> None:
        cfg = compose([*DDP, "name=other", f"resume={run_dir}", *overrides])
        resume.resume_run(cfg, load_config(run_dir), [*overrides])

    return in_processes(function, log_file(run_dir), number)


def log_file(run_dir: Path) -> Path:
    return run_dir.parent / f"{run_dir.name}.log"


def note_rows(directory: Path) -> None:
    """Let each process write the training rows of each of its batches."""
    step = TranslationModule.training_step

    def noted(self: Any, batch: Any, batch_index: int) -> Any:
        with (directory / f"rows_{distributed.rank()}").open("a") as file:
            print(json.dumps([self.trainer.current_epoch, batch.indices.tolist()]), file=file)
        return step(self, batch, batch_index)

    TranslationModule.training_step = noted


def deal_for_two() -> None:
    """Let one process have the batches of two: as many of them are halved as make their number even."""
    divide = TokenBatchSampler._divide

    def divided(self: Any, spans: Any) -> Any:
        self.num_replicas = 2
        try:
            return divide(self, spans)
        finally:
            self.num_replicas = 1

    TokenBatchSampler._divide = divided


def note_writes(directory: Path) -> None:
    """Let each process but the first write the names of what it writes or renames in `directory`."""

    def noted(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "os.rename" or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if writes and str(arguments[0]).startswith(str(directory)):
            os.write(descriptor, f"{arguments[0]}\n".encode())

    if os.environ["RANK"] != "0":
        descriptor = os.open(directory.parent / "writes", os.O_WRONLY | os.O_CREAT)
        sys.addaudithook(noted)


def read_rows(directory: Path, rank: int) -> list[Any]:
    return [json.loads(line) for line in (directory / f"rows_{rank}").read_text().splitlines()]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ddp")


@pytest.fixture(scope="module")
def alone(workspace) -> Path:
    """One process, two batches a step."""
    directory = workspace / "alone" / "run"
    directory.parent.mkdir()

    def before() -> None:
        deal_for_two()
        note_rows(directory.parent)

    status = train(directory, [*SMALL, "trainer.accumulate_grad_batches=2"], number=1, before=before)
    assert status == [0], log_file(directory).read_text()
    return directory


def assert_trained_alike(found: Path, expected: Path) -> None:
    """The same losses, gradients and scores at each step, the same test scores and translations."""
    one, other = scalars(found), scalars(expected)
    assert one.keys() == other.keys()
    for tag, points in other.items():
        assert [step for step, _ in one[tag]] == [step for step, _ in points], tag
        assert [value for _, value in one[tag]] == pytest.approx([value for _, value in points], abs=1e-5), (
            tag
        )
    assert max(value for _, value in other["val/bleu"]) > 1
    scores = [json.loads((run / "metrics.json").read_text()) for run in (found, expected)]
    for each in scores:
        for differing in ("seconds", "tokens_per_second", "command", "machine"):
            del each["training"][differing]
        del each["attention"]  # floats
    assert scores[0] == scores[1]
    assert (found / "hypotheses.txt").read_text() == (expected / "hypotheses.txt").read_text()


def test_two_processes_train_as_one_with_twice_the_batches(workspace, alone):
    directory = workspace / "two" / "run"
    directory.parent.mkdir()

    def before() -> None:
        note_rows(directory.parent)
        note_writes(directory)

    assert train(directory, [*SMALL, *DDP], number=2, before=before) == [0, 0], log_file(
        directory
    ).read_text()
    assert_trained_alike(directory, alone)
    # Rank 0 has the first of each two batches of the one process, rank 1 the second; each row once an epoch.
    whole = read_rows(alone.parent, 0)
    assert [read_rows(directory.parent, rank) for rank in (0, 1)] == [whole[::2], whole[1::2]]
    for epoch in range(6):
        assert sorted(row for number, rows in whole for row in rows if number == epoch) == list(range(220))
    assert (workspace / "two" / "writes").read_text() == ""
    assert len(list(directory.glob("events.*"))) == len(list(alone.glob("events.*")))


@pytest.mark.slow
def test_two_processes_accumulate_as_one(workspace):
    parts, whole = workspace / "accumulated", workspace / "whole"
    short = [*SMALL, "trainer.max_epochs=5"]
    status = train(parts, [*short, *DDP, "trainer.accumulate_grad_batches=2"], number=2)
    assert status == [0, 0], log_file(parts).read_text()
    short += ["trainer.accumulate_grad_batches=4"]
    assert train(whole, short, number=1, before=deal_for_two) == [0], log_file(whole).read_text()
    assert_trained_alike(parts, whole)


def drop_by_the_copy() -> None:
    """Let dropout tell R-Drop's two copies of a batch apart, and draw nothing, which each process would for itself."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0:
            return x
        copies = torch.arange(2, dtype=x.dtype).repeat_interleave(len(x) // 2)
        return x * (1 + 0.2 * copies.view(-1, *[1] * (x.dim() - 1)))

    Dropout.forward = forward


@pytest.mark.slow
def test_two_processes_draw_pieces_and_compare_readings_as_one(workspace):
    parts, whole = workspace / "sampled", workspace / "sampled_alone"
    short = [*SMALL, "model.dropout=0.1", "r_drop=1", "data.tokenizer.sampling=0.1", "guided_alignment=0.1"]
    assert train(parts, [*short, *DDP], number=2, before=drop_by_the_copy) == [0, 0], log_file(
        parts
    ).read_text()

    def before() -> None:
        deal_for_two()
        drop_by_the_copy()

    short += ["trainer.accumulate_grad_batches=2"]
    assert train(whole, short, number=1, before=before) == [0], log_file(whole).read_text()
    assert_trained_alike(parts, whole)


@pytest.mark.slow
def test_two_processes_read_a_stream_as_one(workspace):
    """A pass is two blocks of different lengths, and is no whole number of epochs."""
    text = workspace / "text"
    grammar.write_files(
        text, grammar.corpus(num_train=220, num_val=12, num_test=12, max_words=6, seed=1), format="text"
    )
    kept = [each for each in SMALL if not each.startswith(("data.num", "data.max_words"))]
    kept += ["data=files", f"data.path={text}", "data.src_lang=en", "data.tgt_lang=vi"]
    kept += ["data.max_length=60", "data.buffer_pairs=130", "data.tokenizer.vocab_size=240"]
    parts, whole = workspace / "streamed" / "run", workspace / "streamed_alone" / "run"
    for directory in (parts, whole):
        directory.parent.mkdir()
    two = [*kept, *DDP, "data.streaming=7"]
    status = train(parts, two, number=2, before=lambda: note_rows(parts.parent))
    assert status == [0, 0], log_file(parts).read_text()

    def before() -> None:
        deal_for_two()
        note_rows(whole.parent)

    one = [*kept, "data.streaming=14", "trainer.accumulate_grad_batches=2"]
    assert train(whole, one, number=1, before=before) == [0], log_file(whole).read_text()
    assert_trained_alike(parts, whole)
    together = read_rows(whole.parent, 0)
    assert [read_rows(parts.parent, rank) for rank in (0, 1)] == [together[::2], together[1::2]]
    read = [row for _, rows in together for row in rows]
    assert [sorted(read[start : start + 220]) for start in (0, 220)] == [list(range(220))] * 2


def command(*arguments: str, script: Path = ROOT / "scripts" / "train.py") -> list[str]:
    return [str(script), *last_of_each([*SMALL, *DDP, *arguments])]


def start(arguments: list[str], log: Path) -> subprocess.Popen:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONFAULTHANDLER": "1",  # SIGABRT has each write where it stands
    }
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, *arguments], stdout=file, stderr=file, cwd=ROOT, env=environment
        )


def ended(processes: list[subprocess.Popen], directory: Path) -> list[int]:
    """Exit status of each. After `HANGS` seconds all that name `directory` write where they stand, and are ended."""
    until = time.monotonic() + HANGS
    for process in processes:
        try:
            process.wait(timeout=max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            for number in processes_of(directory):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGABRT)
    return [process.wait() for process in processes]


@pytest.mark.slow
def test_lightning_starts_its_processes(workspace, alone):
    log = workspace / "lightning.log"
    process = start(
        command(f"log_dir={workspace / 'lightning'}", f"data.cache_dir={workspace / 'cache'}"), log
    )
    assert ended([process], workspace / "lightning") == [0], log.read_text()
    [directory] = (workspace / "lightning" / "small").iterdir()
    assert_trained_alike(directory, alone)
    assert log.read_text().count("\nBLEU ") == 1  # the scores at the end
    assert "Warning" not in log.read_text()
    names = {path.name for path in directory.iterdir() if "tfevents" not in path.name}
    assert names == {path.name for path in alone.iterdir() if "tfevents" not in path.name} | {
        "commands.json",
        "train.log",
    }


@pytest.mark.slow
def test_torchrun_starts_one_process_on_each_of_two_nodes(workspace, alone):
    log, port = workspace / "nodes.log", free_port()
    nodes = []
    for number in range(2):
        nodes.append(
            start(
                [
                    *(
                        "-m",
                        "torch.distributed.run",
                        "--nnodes=2",
                        f"--node_rank={number}",
                        "--nproc_per_node=1",
                    ),
                    *("--master_addr=127.0.0.1", f"--master_port={port}"),
                    *command("trainer.devices=1", "trainer.num_nodes=2"),
                    *(f"log_dir={workspace / 'nodes'}", f"data.cache_dir={workspace / 'nodes_cache'}"),
                ],
                log,
            )
        )
        time.sleep(1.1)  # another second, and yet one run directory
    assert ended(nodes, workspace / "nodes") == [0, 0], log.read_text()
    [directory] = (workspace / "nodes" / "small").iterdir()
    assert_trained_alike(directory, alone)
    assert log.read_text().count("\nBLEU ") == 1  # the scores at the end


FAULT = """
from nmt.commands import run_command
from nmt.errors import UserError
from nmt.training.module import TranslationModule

step = TranslationModule.training_step

def training_step(self, batch, batch_index):
    if self.global_rank == {rank} and batch_index == 3:
        raise UserError("rank {rank} has had enough")
    return step(self, batch, batch_index)

TranslationModule.training_step = training_step
run_command("train")
"""


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_one_that_fails_ends_the_run_with_its_error(rank, workspace):
    driver, log = workspace / f"fault_{rank}.py", workspace / f"fault_{rank}.log"
    driver.write_text(FAULT.format(rank=rank))
    directory = workspace / f"fault_{rank}"
    arguments = [f"run_dir={directory}", f"data.cache_dir={workspace / 'cache'}"]
    process = start(command(*arguments, script=driver), log)
    assert ended([process], directory)[0] > 0, log.read_text()
    time.sleep(0.5)
    assert f"error: rank {rank} has had enough" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert not processes_of(directory)


def processes_of(directory: Path) -> list[int]:
    """Those whose command lines name the directory."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # gone by now
            if str(directory).encode() in file.read_bytes():
                found.append(int(file.parent.name))
    return found


def test_a_run_of_two_goes_on_exactly_and_only_with_two(workspace):
    small = [*COMMON, *DDP, "model.dropout=0.2", "trainer.max_epochs=2", "trainer.log_every_n_steps=3"]
    small += ["callbacks.checkpoint.every_n_steps=2"]
    whole, ended = workspace / "uninterrupted", workspace / "ended"
    assert train(whole, small, number=2) == [0, 0], log_file(whole).read_text()

    def sabotage() -> None:
        if os.environ["RANK"] == "1":  # and rank 0 learns of it
            after(TranslationModule, "training_step", 8, lambda: os.kill(os.getpid(), signal.SIGTERM))

    assert train(ended, small, number=2, before=sabotage) == [128 + signal.SIGTERM] * 2
    assert go_on(ended, "trainer.devices=1", number=1) == [1]
    assert "the run had 2 processes and would go on with 1" in log_file(ended).read_text()
    assert go_on(ended, number=2) == [0, 0], log_file(ended).read_text()
    assert_same_run(ended, whole)


def test_a_loss_that_is_no_number_on_one_ends_both_and_names_the_rows_of_both(workspace):
    directory = workspace / "nonfinite" / "run"
    directory.parent.mkdir()

    def sabotage() -> None:
        note_rows(directory.parent)
        step = TranslationModule.training_step

        def training_step(self: Any, batch: Any, batch_index: int) -> Any:
            bad = batch_index == 2 and self.global_rank == 1
            return step(self, batch, batch_index) * (float("nan") if bad else 1)

        TranslationModule.training_step = training_step

    # The batch is the first of its window: no gradient has told rank 0 of it.
    overrides = [*SMALL, *DDP, "trainer.accumulate_grad_batches=2"]
    assert train(directory, overrides, number=2, before=sabotage) == [1, 1]
    assert log_file(directory).read_text().count("UserError: the loss is nan at step 1") == 2
    rows = [read_rows(directory.parent, rank)[2][1] for rank in (0, 1)]
    assert json.loads((directory / "nonfinite_batch.json").read_text())["rows"] == rows[0] + rows[1]


def test_all_processes_agree_on_the_directory_of_the_run(tmp_path):
    rendezvous = torch.distributed.rendezvous

    def late(url: str) -> Any:
        found = next(rendezvous(url))
        time.sleep(0.5)  # in which rank 0 goes on
        yield found

    def function() -> None:
        number = os.environ["RANK"]
        if number == "1":
            torch.distributed.rendezvous = late
        (tmp_path / number).write_text(agree_on(f"directory of {number}"))
        while len(list(tmp_path.glob("[0-9]"))) < 2:  # rank 0 has the store
            time.sleep(0.05)

    assert in_processes(function, tmp_path / "log") == [0, 0], (tmp_path / "log").read_text()
    assert (tmp_path / "0").read_text() == (tmp_path / "1").read_text() == "directory of 0"


def test_processes_that_lightning_starts_take_the_directory_of_the_first(monkeypatch):
    monkeypatch.setenv("NMT_RUN_DIR", "one of an earlier run")
    assert agree_on("here_2") == "here_2"
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert agree_on("a second later") == "here_2"


def test_tasks_of_a_slurm_job_step_agree_too(monkeypatch):
    for key, value in {"SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0"}.items():
        monkeypatch.setenv(key, value)
    assert agree_on(make_run_name()) == "job_71_0"


def test_processes_that_do_not_fit_are_refused(monkeypatch):
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False
    )
    with pytest.raises(UserError, match="a sweep"):
        launch.check_launch(trainer, num_before=None, sweep=True)
    launch.check_launch(trainer, num_before=2, sweep=False)
    with pytest.raises(UserError, match="had 3 processes and would go on with 2"):
        launch.check_launch(trainer, num_before=3, sweep=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UserError, match=r"started 4 processes, but trainer\.devices=2 .* makes 2"):
        launch.check_launch(trainer, num_before=None, sweep=False)


def test_a_sweep_on_a_cluster_composes():
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs attention-nmt[cluster]")
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        cfg = hydra.compose("train", overrides=["hydra/launcher=submitit_slurm"], return_hydra_config=True)
    assert cfg.hydra.launcher._target_.endswith("SlurmLauncher")


def test_a_port_in_use_is_told_from_a_lost_process(monkeypatch):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setenv("MASTER_PORT", str(port))
        with pytest.raises(torch.distributed.DistError) as caught:
            torch.distributed.TCPStore("127.0.0.1", port, 2, is_master=True, wait_for_workers=False)
    assert launch.advise(caught.value, {}, None) == (
        f"port {port}, where the run's processes meet, is in use: set MASTER_PORT to a free one, or end that program"
    )
    assert launch.port_in_use(ValueError("anything else")) is None
