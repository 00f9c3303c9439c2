"""A run from a stranger is data: whatever it holds, a command writes, removes, connects and starts nothing outside."""

import copy
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from nmt import Run
from nmt.commands.run_names import stored_choices
from nmt.errors import UserError
from nmt.run.paths import load_config
from nmt.training.states import check_optimizers
from tests.commands import Ended, refused, run_composed
from tests.small import TINY
from tests.watched import watched

EVIL = "lightning.pytorch.callbacks.ModelCheckpoint"
# Lightning's name for the state of this callback, and a state with which it would remove a folder
STATE = (
    "ModelCheckpoint{'monitor': 'val/bleu', 'mode': 'max', 'every_n_train_steps': 0, 'every_n_epochs': 1, "
    "'train_time_interval': None}"
)
STOPPING = "EarlyStopping{'monitor': 'val/bleu', 'mode': 'max'}"


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A folder with a trained run and the cache of its text."""
    folder = tmp_path_factory.mktemp("original")
    few = ["data.num_train=60", "trainer.max_epochs=1"]
    ended = run_composed("train", *TINY, *few, f"run_dir={folder / 'run'}", cwd=folder)
    assert ended.status == 0, ended.err
    return folder


@pytest.fixture
def stranger(original, tmp_path) -> Iterator[Path]:
    """A copy of the run in a folder of its own; beside it is what must stay as it is."""
    shutil.copytree(original, tmp_path / "here")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("kept\n")
    yield tmp_path / "here" / "run"
    assert [(each.name, each.read_text()) for each in outside.iterdir()] == [("secret", "kept\n")]


def settings(run_dir: Path, **values: Any) -> None:
    """Set dotted keys, written with __ in place of a dot, of the stored configuration."""
    file = run_dir / "config.yaml"
    config = yaml.safe_load(file.read_text("utf-8"))
    for key, value in values.items():
        *parents, name = key.split("__")
        node = config
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    file.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")


def checkpoint(run_dir: Path, change: Callable[[dict[str, Any]], Any], *names: str) -> None:
    for name in names or ("last", "best"):
        file = run_dir / "checkpoints" / f"{name}.ckpt"
        content = torch.load(file, weights_only=True)
        change(content)
        torch.save(content, file)


def outside(run_dir: Path) -> str:
    return str(run_dir.parents[1] / "outside")


def command(name: str, run_dir: Path, *more: str) -> Ended:
    """A command over the run, which fails if it touches anything outside the folder that the run is in."""
    lines = run_dir.parent / "lines"
    lines.write_text("the cat sleeps .\n")
    given = {
        "train": [f"resume={run_dir}", "trainer.max_epochs=2"],
        "evaluate": [f"run={run_dir}", "num_bootstrap=0"],
        "translate": [f"run={run_dir}", f"input={lines}"],
        "align": [f"run={run_dir}", f"src={lines}", f"tgt={lines}"],
        "compare": [f"runs={run_dir}", "num_bootstrap=2", "num_trials=1"],
        "export": [f"run={run_dir}", "format=safetensors", f"output={run_dir.parent / 'exported'}"],
    }[name]
    with watched(run_dir.parent) as seen:
        ended = run_composed(name, *given, *more, cwd=run_dir.parent)
    assert not seen
    return ended


def remover(run_dir: Path) -> None:
    """A run that would remove a folder at its next best validation."""
    settings(
        run_dir, callbacks__evil={"_target_": EVIL, "monitor": "val/bleu", "mode": "max", "save_top_k": 1}
    )
    place = f"local://{outside(run_dir)}"
    state = {
        **{"monitor": "val/bleu", "best_model_score": torch.tensor(-1.0), "best_model_path": place},
        **{"current_score": None, "dirpath": outside(run_dir), "best_k_models": {place: torch.tensor(-1.0)}},
        **{"kth_best_model_path": place, "kth_value": torch.tensor(-1.0), "last_model_path": ""},
    }
    checkpoint(run_dir, lambda content: content["callbacks"].update({STATE: state}))


def test_a_callback_of_a_stranger_is_not_built(stranger):
    remover(stranger)
    refused(command("train", stranger), "callbacks.evil=", "callbacks.evil=null to leave it out")


def test_the_state_of_a_callback_that_removes_files_is_not_loaded(stranger):
    """Though the person has such a callback of their own."""
    remover(stranger)
    own = {
        "_target_": EVIL,
        "monitor": "val/bleu",
        "mode": "max",
        "save_top_k": 1,
        "dirpath": stranger.parent / "own",
    }
    ended = command("train", stranger, *(f"callbacks.evil.{key}={value}" for key, value in own.items()))
    assert ended.status == 0, ended.err
    assert json.loads((stranger / "metrics.json").read_text())["training"]["steps"] == 4


LOGGERS = {
    "W&B": ("wandb", "nmt.training.callbacks.Wandb", {"project": "x", "base_url": "http://127.0.0.1:9"}),
    "MLflow": ("mlflow", "nmt.training.callbacks.MLFlow", {"tracking_uri": "http://127.0.0.1:9"}),
    "Lightning's": ("other", "lightning.pytorch.loggers.MLFlowLogger", {"tracking_uri": "sqlite:///x.db"}),
    "by position": ("csv", "lightning.pytorch.loggers.CSVLogger", {"_args_": ["/tmp/x"]}),
    "of no name": ("tensorboard", "nmt.training.callbacks.TensorBoard", {"save_dir": "local:///tmp/x"}),
}


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=[] if each == "W&B" else pytest.mark.slow) for each in LOGGERS]
)
def test_a_logger_of_a_stranger_sends_nothing(case, stranger):
    name, target, more = LOGGERS[case]
    settings(stranger, **{f"logger__{name}": {"_target_": target, "save_dir": str(stranger), **more}})
    refused(command("train", stranger), f"logger.{name}")


def test_a_choice_of_a_stranger_is_no_file_of_theirs(stranger):
    """Hydra would compose such a file as a choice of this installation, with the modules that it trusts."""
    choice = "../" * 30 + str(stranger / "alignments" / "evil")
    built = {"_target_": "imp.load_source", "name": "x", "pathname": str(stranger / "code.py")}
    (stranger / "code.py").write_text(f"open({outside(stranger) + '/new'!r}, 'w')")
    composed = yaml.safe_dump({"trusted": ["imp"], "logger": {choice: built}})
    (stranger / "alignments" / "evil.yaml").write_text(f"# @package _global_\n{composed}")
    settings(
        stranger, logger={choice: built, "csv": None}, choices__callbacks=choice, choices__trainer=choice
    )
    assert stored_choices(load_config(stranger)) == ["logger=[none]"]
    refused(command("train", stranger), f"logger.{choice}", "is stored in the run, which may not set this")


@pytest.mark.parametrize("name", ["train", "translate", "evaluate"])
def test_a_dictionary_of_a_stranger_is_not_opened(name, stranger):
    settings(stranger, decoding__replace_unknown=True, decoding__dictionary=f"{outside(stranger)}/secret")
    refused(command(name, stranger), "secret is stored in the run, which may name no file: give it again")
    if name != "train":
        with pytest.raises(UserError, match="may name no file"):
            Run.load(stranger).translate(["the cat sleeps ."])
        own = stranger.parent / "own.tsv"
        own.write_text("cat\tmèo\n")
        ended = command(name, stranger, f"decoding.dictionary={own}")
        assert ended.status == 0, ended.err


def link(name: str, target: str = "") -> Callable[[Path], None]:
    def act(run_dir: Path) -> None:
        file = run_dir / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            shutil.rmtree(file)
        file.unlink(missing_ok=True)
        file.symlink_to(target or f"{outside(run_dir)}/secret")

    return act


def second_name(run_dir: Path) -> None:
    (run_dir / "train.log").unlink()
    os.link(f"{outside(run_dir)}/secret", run_dir / "train.log")


def fifo(name: str) -> Callable[[Path], None]:
    def act(run_dir: Path) -> None:
        (run_dir / name).unlink()
        os.mkfifo(run_dir / name)

    return act


def folder(run_dir: Path) -> None:
    (run_dir / "metrics.json").unlink()
    (run_dir / "metrics.json").mkdir()


OTHER_FILES = {
    "a folder for scores": ("train", folder, "metrics.json is a folder with the name of a file"),
    "a log": ("train", link("train.log"), "train.log is no plain file"),
    "settings of a logger": ("train", link("csv/version_0/hparams.yaml"), "hparams.yaml is no plain file"),
    "a second name": ("train", second_name, "train.log has a second name"),
    "a folder": ("train", link("checkpoints", "/tmp"), "checkpoints is no plain file or folder"),
    "a link out of W&B's folder": ("train", link("wandb/debug.log"), "debug.log is no plain file"),
    "an endless tokenizer": (
        "translate",
        link("tokenizer/joint.model", "/dev/zero"),
        "joint.model is no plain",
    ),
    "a tokenizer that waits": ("translate", fifo("tokenizer/joint.model"), "joint.model is no plain file"),
    "scores that wait": ("compare", fifo("metrics.json"), "metrics.json is no plain file"),
    "translations elsewhere": ("evaluate", link("hypotheses.txt"), "hypotheses.txt is no plain file"),
}


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=pytest.mark.slow if "W&B" in each else []) for each in OTHER_FILES]
)
def test_no_file_leads_out_of_a_run(case, stranger):
    name, act, message = OTHER_FILES[case]
    act(stranger)
    refused(command(name, stranger), message)


DATA = {"max_length": 128, "max_ratio": 4.0, "max_tokens": 1024, "tokenizer": {"lowercase": False}}
GRAMMAR = {
    **{"reader": "nmt.data.corpus.read_grammar", "src_lang": "en", "tgt_lang": "vi", "max_words": 12},
    **{"num_train": 10**9, "num_val": 5, "num_test": 5, "seed": 1},
}
HUB = {
    **{"reader": "nmt.data.corpus.read_hub", "name": "someone/text", "config": None, "path": None},
    **{"src_lang": "en", "tgt_lang": "vi"},
}
BUILT = {
    "a reader for a cell": (
        ("translate", "train"),
        lambda run: {"model__encoder__cell": {"_target_": GRAMMAR["reader"], "cache_dir": outside(run)}},
        "model.encoder.cell._target_=nmt.data.corpus.read_grammar: a run may not build this here",
    ),
    "text without an end": (
        ("evaluate", "train"),
        lambda run: {"data": DATA | GRAMMAR | {"cache_dir": outside(run)}},
        "num_train=1000000000: Input should be less than or equal to",
    ),
    "text of the network": (
        ("evaluate", "train"),
        lambda run: {"data": DATA | HUB | {"cache_dir": outside(run)}},
        "someone/text of the Hub, which data/cache has not",
    ),
    "a database for a decoder": (
        ("export",),
        lambda run: {"model__decoder": {"_target_": "lightning.pytorch.loggers.MLFlowLogger"}},
        "model.decoder._target_=lightning.pytorch.loggers.MLFlowLogger: a run may not build this here",
    ),
    "a metric of the network": (
        ("evaluate",),
        lambda run: {"metrics__bleu__tokenize": "flores200"},
        "metrics.bleu.tokenize=flores200 needs a model, which a run does not fetch by itself",
    ),
    "many layers": (
        ("translate", "train"),
        lambda run: {"model__encoder__num_layers": 10**9},
        "model.encoder.num_layers=1000000000: a model has no layers of this size or number",
    ),
    "more layers than there are weights": (
        ("translate",),
        lambda run: {"model__encoder__num_layers": 500, "model__decoder__num_layers": 500},
        "does not fit the configured model, which has more weights",
    ),
    "wide layers": (("translate",), lambda run: {"model__size": 16_384}, "which has more weights"),
    "processes": (("train",), lambda run: {"trainer__devices": 4096}, "trainer.devices=4096"),
    "other machines": (("train",), lambda run: {"trainer__num_nodes": 2}, "trainer.num_nodes=2"),
}


@pytest.mark.parametrize("case", BUILT)
def test_what_a_stranger_would_build_is_refused_first(case, stranger):
    names, changes, message = BUILT[case]
    settings(stranger, **changes(stranger))
    for name in names:
        refused(command(name, stranger), message)


def test_states_of_another_shape_are_refused(stranger):
    """An optimizer that updates all at once would read and write beyond their ends."""

    def change(content: dict[str, Any]) -> None:
        for state in content["optimizer_states"][0]["state"].values():
            state.update(exp_avg=torch.zeros(999, 999), exp_avg_sq=torch.zeros(999, 999))

    checkpoint(stranger, change)
    refused(command("train", stranger), "state optimizer.0.exp_avg is not as this run would have it")


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Adafactor", "ASGD", "Rprop"])
def test_a_state_is_checked_by_the_optimizers_own_of_each_weight(kind):
    """Adafactor keeps other entries for a vector than for a matrix. A step below 0 would make all weights NaN."""
    weights = [torch.nn.Parameter(torch.ones(*shape)) for shape in ((2,), (3, 2))]
    optimizer = getattr(torch.optim, kind)(weights, lr=0.1)
    trainer: Any = SimpleNamespace(lr_scheduler_configs=[], optimizers=[optimizer])
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    stored = {"lr_schedulers": [], "optimizer_states": [copy.deepcopy(optimizer.state_dict())]}
    before = [weight.detach().clone() for weight in weights]
    check_optimizers(stored, trainer)
    assert all(map(torch.equal, weights, before))
    states = stored["optimizer_states"][0]["state"]
    for step in (-1.0, float("nan")) if "step" in states.get(0, {}) else ():
        states[0]["step"] = torch.tensor(step)
        with pytest.raises(UserError, match=r"state optimizer\.0\.step is not as this run would have it"):
            check_optimizers(stored, trainer)


def repeated(times: int = 60) -> list[Any]:
    """A small list that holds itself so often that nobody can go through it."""
    part: list[Any] = ["x"]
    for _ in range(times):
        part = [part, part]
    return part


ODD_STATES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no loops": lambda content: content.pop("callbacks"),
    "a count below 0": lambda content: content["loops"]["fit_loop"]["epoch_progress"]["current"].update(
        completed=-1
    ),
    "a count that is no number": lambda content: content["training"][0].update(train_tokens=float("nan")),
    "a position beyond": lambda content: content["random"][0].update(
        numpy=(*content["random"][0]["numpy"][:2], 10**6, 0, 0.0)
    ),
    "another place": lambda content: content["callbacks"]["Checkpoints"].update(directory="/tmp"),
    "a step that is text": lambda content: content.update(global_step="x"),
    "a step beyond numbers": lambda content: content.update(global_step=2**63 - 1),
    "progress that is text": lambda content: content["training"][0].update(progress="x"),
    "a reason to stop that is none": lambda content: content["callbacks"][STOPPING].update(
        stopping_reason=77
    ),
    "seconds without an end": lambda content: content["training"][0].update(train_seconds=float("inf")),
    "seconds that are no number": lambda content: content["training"][0].update(
        seconds_on_clock=float("nan")
    ),
    "a score that is text": lambda content: content["callbacks"]["Checkpoints"].update(best_score="x"),
    "a score beyond numbers": lambda content: content["callbacks"]["Checkpoints"].update(best_score=10**400),
    "a weight that is none": lambda content: content["state_dict"].update({"translator.x": 5}),
    "no text": lambda content: content.pop("TranslationDataModule"),
    "an entry less": lambda content: content["optimizer_states"][0]["state"][0].pop("exp_avg"),
    "another rule": lambda content: content["optimizer_states"][0]["param_groups"][0].update(fused=5),
    "a schedule": lambda content: content["lr_schedulers"][0].update(last_epoch="x"),
    "a part many times": lambda content: content["training"][0]["progress"].update(loss=repeated()),
    "itself": lambda content: content["training"][0].update(progress=content),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ODD_STATES)
def test_odd_states_are_refused_in_one_line(case, stranger):
    checkpoint(stranger, ODD_STATES[case])
    refused(command("train", stranger), "")


def test_odd_totals_of_a_finished_run_are_refused(stranger):
    (stranger / "metrics.json").unlink()
    checkpoint(stranger, lambda content: content["training"][0].update(train_tokens=torch.zeros(1)))
    refused(command("train", stranger, "trainer.max_epochs=1"), "state training.tokens_per_second is not as")


def test_a_checkpoint_that_unpacks_to_more_is_refused(stranger):
    for name in ("best", "last"):
        file = stranger / "checkpoints" / f"{name}.ckpt"
        torch.save({"state_dict": {"translator.x": torch.zeros(10**7)}}, file)
        with zipfile.ZipFile(file) as packed:
            parts = {each: packed.read(each) for each in packed.namelist()}
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for each, content in parts.items():
                packed.writestr(each, content)
    refused(
        command("translate", stranger), "best.ckpt is broken or no checkpoint (it unpacks to more than it is)"
    )
    refused(command("train", stranger), "has no whole checkpoint to go on from")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "config.yaml has an alias, *a"),
        (f"z: {'[' * 20_000}", "config.yaml is "),
        (f"# {'x' * 200_000}", "config.yaml is too large"),
        (f"z: [{'1,' * 20_000}1]", "config.yaml is too large"),
    ],
)
def test_a_configuration_is_small_and_plain(text, message, stranger):
    with (stranger / "config.yaml").open("a") as file:
        file.write(text)
    refused(command("translate", stranger), message)


ODD_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "a key that is no text": ({"metrics": {5: "x"}}, "metrics has a key that is no text, 5"),
    "bytes": ({"data__path": b"x"}, "data.path is neither text nor a number"),
    "a mode": ({"callbacks__early_stopping__mode": "x"}, "callbacks.early_stopping.mode=x: "),
    "two ways to step": ({"optimizer__foreach": True, "optimizer__fused": True}, "optimizer: `fused` and"),
    "a share of nothing": ({"old_share": 0.5, "start_from": None}, "old_share=0.5 needs start_from=RUN_DIR"),
}


@pytest.mark.parametrize("case", ODD_SETTINGS)
def test_odd_settings_are_refused_in_one_line(case, stranger):
    values, message = ODD_SETTINGS[case]
    settings(stranger, **values)
    refused(command("train", stranger), message)


def test_a_tokenizer_that_makes_much_of_a_letter_is_refused(stranger):
    file = stranger / "tokenizer" / "joint.model"
    proto = ModelProto.FromString(file.read_bytes())
    proto.normalizer_spec.precompiled_charsmap += b"b" * 1000 + b"\0"
    file.write_bytes(proto.SerializeToString())
    refused(command("translate", stranger), "joint.model makes 1,000 bytes of a piece or character")


@pytest.mark.parametrize("content", ["5", '{"bleu": {"signature": 5}}', "[" * 100_000])
def test_damaged_scores_do_not_stop_an_export(content, stranger, caplog):
    (stranger / "metrics.json").write_text(content)
    ended = command("export", stranger)
    assert ended.status == 0, ended.err
    assert "metrics.json is left out of the model card: " in caplog.text
    assert "Not scored." in (stranger.parent / "exported" / "README.md").read_text()
    ended = command("compare", stranger)
    if "bleu" not in content:  # a comparison scores anew
        refused(ended, "metrics.json is broken", "score it with: python scripts/evaluate.py")


@pytest.mark.slow
def test_a_damaged_extra_does_not_stop_a_training(stranger):
    for name in ("metrics.json", "alignments/history.npz", "commands.json", "hypotheses.txt"):
        (stranger / name).write_bytes(b"\xff\x00damaged")
    ended = command("train", stranger)
    assert ended.status == 0, ended.err
    assert json.loads((stranger / "metrics.json").read_text())["training"]["steps"] == 4
    with np.load(stranger / "alignments" / "history.npz") as arrays:
        assert arrays["steps"].tolist() == [4]


@pytest.mark.parametrize("name", ["translate", "evaluate", "align", "compare", "export", "train"])
def test_a_run_that_is_as_it_should_be_is_taken_as_it_is(name, stranger):
    """So the watch of the other tests is not what stops them."""
    ended = command(name, stranger)
    assert ended.status == 0, ended.err
