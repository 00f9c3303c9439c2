"""Sweeps in more than one process, and searches that go by the validation score; failed runs do not end them."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt.commands import entry
from nmt.config.types import key_of
from nmt.training import changes
from tests.commands import ROOT, call, compose, refused, run, run_composed
from tests.test_trackers import TINY

SHORT = [each for each in TINY if "alignments" not in each and "model.size" not in each] + [
    "callbacks=minimal",
    "trainer.max_epochs=1",
]


def scored(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/*/metrics.json"))


@pytest.mark.slow
def test_a_search_goes_by_the_validation_score_and_on_after_a_trial_that_failed(tmp_path):
    pytest.importorskip("optuna", reason="needs attention-nmt[tuning]")
    settings = [*SHORT, f"log_dir={tmp_path}", f"data.cache_dir={tmp_path.parent / 'cache'}"]
    ended = run(
        "train", "-m", "tuning=dropout_rate_width", *settings,
        "hydra.sweeper.n_trials=3", "model.size=choice(0,16,16)",
    )  # fmt: skip
    assert ended.status == 0, ended.err
    assert "model.size=0" in ended.err
    runs = scored(tmp_path)
    assert len(runs) == 2
    found = yaml.safe_load((tmp_path / "optimization_results.yaml").read_text("utf-8"))
    assert set(found["best_params"]) == {"model.dropout", "model.size", "optimizer.lr"}
    validations = [EventAccumulator(str(each)).Reload().Scalars("val/bleu") for each in runs]
    assert found["best_value"] == pytest.approx(
        max(each.value for steps in validations for each in steps), rel=1e-6
    )
    compared = run(
        "compare", f"runs={tmp_path}/*/*", "num_bootstrap=10", "num_trials=10", f"output={tmp_path / 'out'}"
    )
    assert compared.status == 0, compared.err
    assert len(json.loads((tmp_path / "out/comparison.json").read_text("utf-8"))["runs"]) == 2


def test_a_search_of_which_all_trials_fail_ends_in_one_line(tmp_path):
    pytest.importorskip("optuna", reason="needs attention-nmt[tuning]")
    ended = run(
        "train", "-m", "tuning=dropout_rate_width", *SHORT, f"log_dir={tmp_path}",
        "hydra.sweeper.n_trials=2", "model.size=16", "optimizer.eps=-1",
    )  # fmt: skip
    assert ended.status == 1
    assert "Traceback" not in ended.err
    assert ended.err.splitlines()[-1].endswith("every trial of the search failed, see their errors above")


def test_a_search_in_a_single_run_is_refused():
    refused(run_composed("train", "tuning=dropout_rate_width"), "tuning= has no effect", "-m")


@pytest.mark.parametrize(
    ("choice", "extra"), [("sweeper/optuna", "tuning"), ("launcher/submitit_slurm", "cluster")]
)
def test_an_engine_that_is_not_installed_is_named_with_its_extra(choice, extra):
    text = f"Could not find 'hydra/{choice}'\n\nAvailable options in 'hydra/{choice.split('/')[0]}':\n\tbasic"
    assert entry.explain_error(Exception(text), "train").endswith(f"pip install -e '.[{extra}]'")


@pytest.mark.slow
def test_runs_in_processes_of_a_launcher_end_alone(tmp_path):
    pytest.importorskip("submitit", reason="needs attention-nmt[cluster]")
    ended = call(
        "train", "-m", "hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5", *SHORT,
        f"log_dir={tmp_path}", f"data.cache_dir={tmp_path / 'cache'}", "model.size=0,16",
    )  # fmt: skip
    refused(ended, "run 0 (from 0) of this sweep failed", ".submitit")
    assert len(scored(tmp_path)) == 1
    said = "".join(file.read_text("utf-8") for file in tmp_path.glob(".submitit/*/*.err"))
    assert "error: model.size=0: " in said


def test_the_script_for_slurm_starts_a_run_on_all_machines_and_goes_on_with_it_unchanged(tmp_path):
    (tmp_path / "srun").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "srun").chmod(0o755)
    slurm = {"SLURM_CPUS_PER_TASK": "4", "SLURM_NTASKS_PER_NODE": "4", "SLURM_JOB_NUM_NODES": "2"}
    environment = {**os.environ, **slurm, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def started(*given: str) -> tuple[DictConfig, list[str]]:
        command = ["bash", ROOT / "scripts/slurm.sbatch", *given]
        said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        _, python, script, *overrides = said.split()
        assert (python, script) == ("python", "scripts/train.py")
        return compose("train", "name=small", "run_dir=RUN_DIR", *overrides), [
            key_of(each) for each in overrides
        ]

    stored, _ = started("trainer.max_epochs=30", "trainer.precision=bf16-mixed")
    assert (stored.trainer.strategy, stored.trainer.devices, stored.trainer.num_nodes) == ("ddp", 4, 2)
    wanted, keys = started("resume=RUN_DIR")
    kept, asked, written = (
        OmegaConf.to_container(each, resolve=resolve)
        for each, resolve in ((stored, True), (wanted, True), (wanted, False))
    )
    keys.remove("resume")
    assert changes.apply_changes(kept, asked, keys, written=written) == (kept, [])
