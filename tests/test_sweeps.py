"""Sweeps in more than one process, and searches that go by the validation score; failed runs do not end them."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt.commands import entry
from tests.commands import ROOT, call, refused, run, run_composed
from tests.test_trackers import TINY

SHORT = [each for each in TINY if "alignments" not in each and "model.size" not in each] + [
    "callbacks=minimal",
    "trainer.max_epochs=1",
]


def scored(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/*/metrics.json"))


@pytest.mark.slow
def test_a_search_goes_by_the_validation_score_and_on_after_a_trial_that_failed(tmp_path):
    pytest.importorskip("optuna", reason="needs nmt[tuning]")
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
    pytest.importorskip("optuna", reason="needs nmt[tuning]")
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
    assert entry.explain(Exception(text), "train").endswith(f"pip install -e '.[{extra}]'")


@pytest.mark.slow
def test_runs_in_processes_of_a_launcher_end_alone(tmp_path):
    pytest.importorskip("submitit", reason="needs nmt[cluster]")
    ended = call(
        "train", "-m", "hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5", *SHORT,
        f"log_dir={tmp_path}", f"data.cache_dir={tmp_path / 'cache'}", "model.size=0,16",
    )  # fmt: skip
    refused(ended, "run 0 (from 0) of this sweep failed", ".submitit")
    assert len(scored(tmp_path)) == 1
    said = "".join(file.read_text("utf-8") for file in tmp_path.glob(".submitit/*/*.err"))
    assert "error: model.size=0: " in said


def test_the_script_for_slurm_is_one():
    script = ROOT / "scripts/slurm.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    assert "trainer=ddp" in script.read_text("utf-8")
