"""A run's scalars, pictures, tables and settings in each tracker, read back with the tracker's own reader."""

import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from nmt.errors import UserError
from nmt.training.callbacks import TensorBoard, trackers
from nmt.training.scoring import by_interest
from nmt.training.trainer import make_loggers
from tests.commands import ROOT, compose, free_port, refused, run, run_composed

TINY = [
    "data.num_train=60", "data.num_val=4", "data.num_test=4", "data.max_words=12", "data.tokenizer.vocab_size=200",
    "model.size=16", "trainer.limit_train_batches=2", "trainer.accelerator=cpu", "trainer.enable_progress_bar=false",
    "trainer.log_every_n_steps=1", "callbacks.alignments.num_sentences=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> list[str]:
    """The trackers that can be tested here: MLflow does not go with every set of pinned packages."""
    names = ["tensorboard", "csv", "wandb", "mlflow"]
    return [name for name in names if name == "csv" or importlib.util.find_spec(name)]


@pytest.fixture(scope="module")
def run_dir(installed, tmp_path_factory) -> Path:
    """A run of one epoch with all trackers, and then of another; wandb has no key here, and goes offline by itself."""
    there = tmp_path_factory.mktemp("trackers")
    directory = there / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trackers, "_STORE", None)
        patch.setenv("MLFLOW_TRACKING_URI", "")  # put back what MLflow sets
        for variable in ("WANDB_API_KEY", "WANDB_MODE"):
            patch.delenv(variable, raising=False)
        patch.setenv("HOME", str(there))  # no one's ~/.netrc
        chosen = [*TINY, f"data.cache_dir={there / 'cache'}", "trainer.max_epochs=1"]
        ended = run("train", *chosen, f"logger=[{','.join(installed)}]", f"run_dir={directory}")
        assert ended.status == 0, ended.err
        shutil.copytree(directory, there / "first")
        ended = run("train", f"resume={directory}", "trainer.max_epochs=2")
        assert ended.status == 0, ended.err
        if "wandb" in installed:
            import wandb

            wandb.teardown()
    return directory


def final_score(run_dir: Path) -> float:
    return json.loads((run_dir / "metrics.json").read_text("utf-8"))["bleu"]["score"]


@pytest.mark.slow
def test_csv_has_the_scalars_of_each_start_and_the_settings(run_dir):
    for start, steps in enumerate(({1, 2}, {3, 4})):
        folder = run_dir / "csv" / f"version_{start}"
        with (folder / "metrics.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert {int(row["step"]) for row in rows if row["train/loss"]} == steps
        assert float(rows[-1]["test/bleu"]) == pytest.approx(
            final_score(run_dir if start else run_dir.parent / "first")
        )
        settings = yaml.safe_load((folder / "hparams.yaml").read_text("utf-8"))
        assert settings["choice/attention"] == "luong_general"
        assert settings["model.size"] == 16


@pytest.mark.slow
def test_wandb_has_scalars_pictures_tables_and_settings_of_both_starts_under_one_id(run_dir):
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    number = (run_dir / "wandb.id").read_text("utf-8")
    folders = sorted((run_dir / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    for folder, last in zip(folders, (2, 4), strict=True):
        store, logged, settings = DataStore(), [], {}
        store.open_for_scan(str(folder / f"run-{number}.wandb"))
        while data := store.scan_data():
            record = Record.FromString(data)
            logged.append(
                {
                    "/".join(each.nested_key) or each.key: json.loads(each.value_json)
                    for each in record.history.item
                }
            )
            settings |= {each.key: json.loads(each.value_json) for each in record.config.update}
        store.close()
        scalars = [row for row in logged if "val/bleu" in row]
        assert [row["trainer/global_step"] for row in scalars] == [last]
        assert [row["trainer/global_step"] for row in logged if "test/bleu" in row] == [last]
        assert settings["choice/attention"] == "luong_general"
        assert settings["model.size"] == 16
        [picture] = (folder / "files/media/images/val/alignment").glob("*.png")
        [ours] = (run_dir / "alignments").glob(f"val_*_step_{last:06d}.png")
        with Image.open(picture) as theirs, Image.open(ours) as kept:
            assert theirs.size == kept.size
        [table] = (folder / "files/media/table/val").glob("translations*.json")
        assert json.loads(table.read_text("utf-8"))["columns"] == ["", "source", "reference", "translation"]


@pytest.mark.slow
def test_mlflow_has_scalars_pictures_tables_and_settings_of_both_starts_in_one_run(run_dir):
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{run_dir}/mlflow.db")
    [experiment] = client.search_experiments(filter_string="name = 'nmt'")
    [logged] = client.search_runs([experiment.experiment_id])
    assert logged.info.run_id == (run_dir / "mlflow.id").read_text("utf-8")
    assert logged.info.status == "FINISHED"
    assert [each.step for each in client.get_metric_history(logged.info.run_id, "train/loss")] == [1, 2, 3, 4]
    assert logged.data.metrics["test/bleu"] == pytest.approx(final_score(run_dir))
    assert logged.data.params["choice/attention"] == "luong_general"
    assert logged.data.params["model.size"] == "16"
    pictures = [each.path for each in client.list_artifacts(logged.info.run_id, "images")]
    assert sum(path.endswith(".png") for path in pictures) == 2
    artifacts = Path(logged.info.artifact_uri)
    assert artifacts.is_relative_to(run_dir)
    for step in (2, 4):
        table = (artifacts / f"val/translations/step_{step:06d}.md").read_text("utf-8")
        assert table.startswith("| | source | reference | translation |\n|---|---|---|---|\n| 0 | ")


@pytest.mark.slow
def test_tensorboard_has_what_it_has_alone(run_dir):
    events = EventAccumulator(str(run_dir), size_guidance={"images": 0}).Reload()
    assert [each.step for each in events.Scalars("val/bleu")] == [2, 4]
    assert any(tag.startswith("val/alignment/") for tag in events.Tags()["images"])
    assert "val/translations/text_summary" in events.Tags()["tensors"]


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_named_with_its_extra(tracker, tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda package: None)
    ended = run_composed("train", *TINY, f"logger={tracker}", f"run_dir={tmp_path / 'run'}")
    refused(ended, f"logger={tracker} needs the package {tracker}: pip install -e '.[{tracker}]'")


@pytest.mark.parametrize("name", ["tensorboard", "csv", "wandb", "mlflow"])
def test_a_setting_that_a_logger_has_not_is_refused_before_anything_is_written(name, installed, tmp_path):
    if name not in installed:
        pytest.skip(f"{name} is not installed")
    cfg = compose("train", f"logger={name}", "name=here", f"run_dir={tmp_path}", f"+logger.{name}.foo=1")
    with pytest.raises(UserError, match=rf"logger\.{name}\.foo"):
        make_loggers(cfg, last_step=None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("logger=csv", ["csv"]),
        ("logger=[tensorboard,csv]", ["tensorboard", "csv"]),
        ("logger=none", []),
        ("logger=[]", []),
        ("seed=1", ["tensorboard"]),
    ],
)
def test_loggers_are_one_choice_a_list_or_none(choice, names, tmp_path):
    cfg = compose("train", choice, "name=here", f"run_dir={tmp_path}")
    assert list(cfg.get("logger") or {}) == names
    assert len(make_loggers(cfg, last_step=7)) == len(names)


def test_a_table_and_a_picture_reach_every_logger_that_takes_them():
    given: list[Any] = []

    class Taker(trackers.Wandb):
        def __init__(self) -> None: ...

        experiment = None

        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            given.append((metrics, step))

        def log_image(self, key: str, images: list[Any], step: int | None = None, **more: Any) -> None:
            given.append((key, images[0].shape, step))

        def log_text(
            self, key: str, columns: Any = None, data: Any = None, dataframe: Any = None, step: Any = None
        ) -> None:
            given.append((key, columns, data, step))

    trainer: Any = SimpleNamespace(loggers=[Taker(), SimpleNamespace(experiment=None)])
    trackers.log_image(trainer, "a", np.zeros((2, 3, 3), np.uint8), 5)
    trackers.log_table(trainer, "b", ("", "c"), [("0", "x|y")], 6)
    assert given == [("a", (2, 3, 3), 5), ("b", ["", "c"], [["0", "x|y"]], 6)]
    assert trackers.markdown_table(("", "c"), [("0", "x|y")]) == "| | c |\n|---|---|\n| 0 | x&#124;y |"


@pytest.mark.slow
@pytest.mark.parametrize(
    "uri", ["{own}/..%2F..%2Fplace", "logs/mlflow", "file://host{own}/a", "http://host{own}/a"]
)
def test_a_stored_place_that_mlflow_reads_in_its_own_way_is_refused(uri, installed, tmp_path, monkeypatch):
    if "mlflow" not in installed:
        pytest.skip("MLflow is not installed")
    monkeypatch.setattr(trackers, "_STORE", None)
    logger = trackers.MLFlow(save_dir=str(tmp_path), experiment_name="x", run_name="y", tracking_uri=None)
    info = SimpleNamespace(artifact_uri=uri.format(own=tmp_path / "mlflow"))
    client = SimpleNamespace(get_run=lambda _: SimpleNamespace(info=info))
    monkeypatch.setattr(trackers.MLFlowLogger, "experiment", property(lambda self: client))
    with pytest.raises(UserError, match="where MLflow would go on writing"):
        assert logger.experiment


@pytest.mark.slow
def test_settings_of_wandb_in_a_run_are_refused(installed, tmp_path):
    if "wandb" not in installed:
        pytest.skip("W&B is not installed")
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nbase_url = http://localhost:1\n")
    with pytest.raises(UserError, match="settings names a server"):
        trackers.Wandb(save_dir=str(tmp_path), project="x")


@pytest.mark.slow
def test_a_moved_store_of_mlflow_is_refused_before_it_writes_elsewhere(
    run_dir, installed, tmp_path, monkeypatch
):
    if "mlflow" not in installed:
        pytest.skip("MLflow is not installed")
    monkeypatch.setattr(trackers, "_STORE", None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    moved = shutil.copytree(run_dir, tmp_path / "moved")
    refused(
        run("train", f"resume={moved}", "trainer.max_epochs=3", "logger=mlflow"),
        "logger.mlflow",
        str(run_dir),
    )
    assert torch.load(moved / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 4


@pytest.mark.slow
def test_only_the_first_of_two_processes_of_torchrun_writes(installed, tmp_path):
    arguments = [
        *("-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2", f"--master-port={free_port()}"),
        *(str(ROOT / "scripts/train.py"), "trainer=ddp", *TINY, "trainer.devices=2", "trainer.max_epochs=1"),
        *(
            f"logger=[{','.join(installed)}]",
            f"log_dir={tmp_path}",
            "name=two",
            f"data.cache_dir={tmp_path / 'cache'}",
        ),
    ]
    kept = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    settings = {**kept, "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"}
    ended = subprocess.run(
        [sys.executable, *arguments], env=settings, stdin=subprocess.DEVNULL, capture_output=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr.decode()
    [directory] = (tmp_path / "two").iterdir()
    assert [each.name for each in (directory / "csv").iterdir()] == ["version_0"]
    with (directory / "csv/version_0/metrics.csv").open(encoding="utf-8") as file:
        assert len([row for row in csv.DictReader(file) if row["val/bleu"]]) == 1
    if "wandb" in installed:
        assert len(list((directory / "wandb").glob("offline-run-*"))) == 1
    if "mlflow" in installed:
        import mlflow

        client = mlflow.MlflowClient(f"sqlite:///{directory}/mlflow.db")
        [experiment] = client.search_experiments(filter_string="name = 'nmt'")
        assert len(client.search_runs([experiment.experiment_id])) == 1


def test_hparams_shows_the_settings_of_the_command_line_first(tmp_path):
    usual = {"choice/attention": "bahdanau", "choice/data": "grammar", "choice/model": "gru", "model.size": 4}
    params = {"averaging": "None", "a": 1, **usual, "model.encoder.size": 8, "seed": 1}
    settings = by_interest(params, "python scripts/train.py encoder.size=8; python scripts/train.py seed=1")
    assert list(settings) == ["model.encoder.size", "seed", *usual, "a"]
    logger = TensorBoard(save_dir=str(tmp_path), name="", version="")
    logger.log_hyperparams(settings, {"test/bleu": 9.0}, step=3)
    logger.finalize("success")
    events = EventAccumulator(str(tmp_path)).Reload()
    content = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    columns = HParamsPluginData.FromString(content).experiment.hparam_infos
    assert [each.name for each in columns if each.differs] == list(settings)[:5]  # TensorBoard shows five
    assert [(each.step, each.value) for each in events.Scalars("test/bleu")] == [(3, 9.0)]
