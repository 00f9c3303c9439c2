"""Settings are what their declarations say, and a run builds what it may and a person's own classes where trusted."""

import re
import sys
from functools import partial
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import assume, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from nmt import environment
from nmt.commands import suggesting
from nmt.commands.arguments import prepare_arguments, quote_argument
from nmt.commands.reference import help_of
from nmt.commands.suggesting import suggest
from nmt.config.build import PLACES, build, check_buildable, errors_of, may_build
from nmt.config.commands import OF_COMMANDS, check_settings
from nmt.config.types import GROUPS, Count, check_value
from nmt.decoding import DecodingSettings
from nmt.errors import UserError
from nmt.run.run import Run
from tests.commands import CONFIGS, compose, refused, run, run_composed
from tests.small import TINY


def node(target: str, **settings):
    return OmegaConf.create({"part": {"_target_": target, **settings}}).part


# The environment


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "abc"},
        {"LOCAL_RANK": "-1"},
        {"WORLD_SIZE": "two"},
        {"SLURM_PROCID": "1.5"},
        {"SACREBLEU_SEED": "abc"},
        {"RANK": "3"},  # nobody would write the run
    ],
    ids=str,
)
def test_variables_that_are_no_numbers_are_refused_at_the_door(variables, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    [(name, value)] = variables.items()
    refused(run("train"), f"{name}={value}")


def test_a_variable_longer_than_any_number_is_refused_in_a_short_line(monkeypatch):
    monkeypatch.setenv("RANK", "1" * 5_000)
    with pytest.raises(UserError, match=r"^the variable RANK=1{40} is no whole number"):
        environment.check_variables()


def test_variables_of_a_launcher_and_of_an_unseeded_bootstrap_pass(monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "SACREBLEU_SEED": "None"}.items():
        monkeypatch.setenv(name, value)
    environment.check_variables()


# Declarations


@pytest.mark.parametrize("name", OF_COMMANDS)
def test_a_command_declares_each_setting_of_its_own(name):
    groups = {group.name for group in GROUPS}
    own = {key for key in OmegaConf.load(CONFIGS / f"{name}.yaml") if key not in ("defaults", "hydra")}
    assert own - groups == set(OF_COMMANDS[name].__annotations__) - groups
    check_settings(compose(name), name)


def test_what_a_setting_may_be_is_said_in_words_apart():
    cfg = compose("demo", "run=[]")
    with pytest.raises(UserError, match="valid string, or List should have at least 1 item"):
        check_settings(cfg, "demo")


def test_the_table_of_groups_is_what_is_on_the_disk():
    assert {group.name for group in GROUPS} == {each.name for each in CONFIGS.iterdir() if each.is_dir()} - {
        "hydra"
    }


# The command line


@pytest.mark.parametrize("key", ["run", "model.dropout"])
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_text_comes_through_hydra_as_it_was_typed(key, text):
    """But for Hydra's own forms: quotes, lists, references; and spaces around what is no setting of text."""
    assume(text[0] not in "'\"[{~ " and text != "null" and "$" not in text)
    argument = quote_argument(f"{key}={text}", {"run": {str}})
    value = OverridesParser.create().parse_override(argument).value()
    assert value == text or (key != "run" and argument == f"{key}={text}")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("run=a,b", ["a", "b"]),
        ("run=[é,a b,nan,1e3]", ["é", "a b", "nan", "1e3"]),
        ("run=['a,b',c]", ["a,b", "c"]),
        ("run=null", None),
        ("run='null'", "null"),
        ("run=", ""),
        ("run=~/x", str(Path.home() / "x")),
        ("model.size=[1,2]", [1, 2]),
        ("model.size=1e3", 1000.0),
        ("optimizer.betas=[.9,.98]", [0.9, 0.98]),
    ],
)
def test_lists_numbers_and_quotes_are_read_as_before(given, expected):
    argument = quote_argument(given, {"run": {str, list}})
    assert quote_argument(argument, {"run": {str, list}}) == argument  # as a process of the run gets it again
    assert OverridesParser.create().parse_override(argument).value() == expected


def test_a_comma_in_the_name_of_a_file_that_is_there_makes_no_list(tmp_path):
    (tmp_path / "a,b").touch()
    argument = quote_argument(f"run={tmp_path}/a,b", {"run": {str, list}})
    assert OverridesParser.create().parse_override(argument).value() == f"{tmp_path}/a,b"


def test_a_sweep_is_over_text_in_quotes():
    for argument, expected in {
        "run=é,a#b": "run='é','a#b'",
        "model.size=é,1": "model.size='é','1'",
        "model.size=1,2": "model.size=1,2",
        "attention=glob(*)": "attention=glob(*)",
        "run=choice(a,b)": "run=choice(a,b)",
    }.items():
        assert quote_argument(argument, {"run": {str}}, sweeps=True) == expected


def test_a_choice_needs_no_plus():
    assert prepare_arguments(["+attention=bahdanau"], "train") == ["attention=bahdanau"]


def test_options_may_stand_between_settings():
    assert prepare_arguments(["seed=1", "-m", "--config-dir", "é", "kernels=fast"], "train") == [
        "-m", "--config-dir", "é", "seed=1", "kernels=fast",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "given", "fragments"),
    [
        ("train", ["--lr", "3"], ["--lr", "KEY=VALUE", "optimizer.lr"]),
        ("train", ["--batch-size=3"], ["data.max_tokens"]),
        ("train", ["-m", "--run"], ["--run", "KEY=VALUE"]),
        ("translate", ["--run", "x"], ["run=VALUE"]),
        ("train", ["epochs", "=", "3"], ["epochs", "KEY=VALUE", "spaces", "trainer.max_epochs"]),
        ("train", ["model.size:64"], ["model.size=VALUE"]),
        ("train", ["=5"], ["=5", "KEY=VALUE"]),
        ("train", ["seed=1", "+seed=2"], ["seed", "twice"]),
        ("train", ["-m", "--cfg", "job"], ["-m", "--cfg"]),
        ("train", ["--cfg", "everything"], ["--cfg", "job"]),
        ("train", ["--cfg"], ["--cfg", "job"]),
        ("train", ["--resolve"], ["--resolve", "--cfg job"]),
        ("train", ["data=base"], ["data=base", "files"]),
        ("train", ["hydra.run.dir=x"], ["hydra.run.dir", "run_dir"]),
        ("train", ["+hydra.foo=1"], ["hydra.foo"]),
        ("train", ["run_dir=a\udcff"], ["UTF-8", "PYTHONUTF8"]),
    ],
)
def test_arguments_that_are_no_settings_are_refused(command, given, fragments):
    with pytest.raises(UserError) as refusal:
        prepare_arguments(given, command)
    for fragment in fragments:
        assert fragment in str(refusal.value)


def test_a_run_directory_alone_is_said_with_its_key(tmp_path):
    (tmp_path / "config.yaml").touch()
    for command, key in (("train", "resume"), ("translate", "run"), ("compare", "runs")):
        with pytest.raises(UserError, match=f"{key}={tmp_path}"):
            prepare_arguments([str(tmp_path)], command)


@pytest.mark.parametrize(
    ("command", "key", "meant"),
    [
        ("train", "epochs", "trainer.max_epochs"),
        ("train", "epchs", "trainer.max_epochs"),
        ("train", "trainer.gpus", "trainer.devices"),
        ("train", "lr", "optimizer.lr"),
        ("train", "data.path", "data=files"),
        ("train", "decoding.top_p", "decoding=sample"),
        ("train", "batch_size", "'data.max_tokens', padded tokens in a batch"),
        ("train", "decoding.topp", "decoding=sample decoding.top_p"),
        ("train", "attention.temperatur", "'attention.temperature' of attention="),
        ("train", "data.streming", "'data.streaming' of data=files"),
        ("train", "wiring.input_feeding", "wiring=update_then_attend"),
        ("train", "optimzer.lr", "optimizer.lr"),
        ("train", "optimizer.learning_rate", "optimizer.lr"),
        ("train", "Model.Size", "model.size"),
        ("train", "atention", "attention"),
        ("train", "logger.wandb.project", "logger=wandb"),
        ("translate", "batch_size", "block_size"),
        ("translate", "beam", "decoding.beam_size"),
        ("translate", "epochs", "--help"),
        ("translate", "model", "'run'"),
        ("translate", "trainer.max_epochs", "a setting of train"),
        ("prepare", "data", "leave it out, it is a setting of train"),
        ("train", "wandb", "'logger=[tensorboard,wandb]'?"),
        ("train", "attention.sigma", "--help attention"),
        ("compare", "run", "runs"),
    ],
)
def test_an_unknown_key_leads_to_the_setting_that_was_meant(command, key, meant):
    assert meant in suggest(key, command)


def test_a_setting_of_a_class_of_ones_own_is_added(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "attention._target_=my_lab.Gaussian", "attention.sigma=2"])
    assert "+attention.sigma=VALUE" in suggest("attention.sigma", "train")


def test_every_other_name_leads_to_a_setting_of_some_command():
    lines = Path(suggesting.__file__).with_name("other_names.txt").read_text("utf-8").splitlines()
    found = {right for command in OF_COMMANDS for _, right in suggesting.other_names(command)}
    assert found == {line.partition(": ")[0] for line in lines}


def test_help_is_short_and_the_help_of_a_group_has_types_and_meanings():
    for command in OF_COMMANDS:
        shown = help_of(command, [])
        assert len(shown.splitlines()) < 80
        assert "_target_" not in shown
        own = OmegaConf.load(CONFIGS / f"{command}.yaml").keys() - {"defaults", "hydra"}
        assert all(re.search(rf"^  {key}[=.]", shown, re.MULTILINE) for key in own)
    assert "base" not in help_of("train", [])
    beam = next(line for line in help_of("translate", ["decoding"]).splitlines() if "beam_size=5" in line)
    assert "hypotheses kept at each step (integer ≥ 1" in beam
    assert "attention=bahdanau" in help_of("train", ["attention"])
    assert "decoding=greedy" not in help_of("train", ["decoding=beam"])
    assert "optimizer.lr=" in help_of("train", ["learning", "rate"])
    assert "model.dropout=" in help_of("train", ["model.dropout=0.3"])
    with pytest.raises(UserError, match="nosuch"):
        help_of("translate", ["nosuch"])


@pytest.mark.parametrize("value", [0, True, "3", 3.0, None])
def test_a_count_is_a_whole_number_of_at_least_one(value):
    with pytest.raises(UserError, match=r"^a\.b=(0|true|3|3\.0|null): Input should be "):
        check_value(Count, value, "a.b")


@pytest.mark.parametrize(
    ("place", "target", "settings", "message"),
    [
        ("content", "nmt.attention.GeneralAttention", {"temperature": 0}, "^part.temperature=0: .* than 0"),
        ("content", "nmt.attention.GeneralAttention", {"size": 3}, "^part.size: .* has no such setting"),
        (
            "decoding",
            "nmt.decoding.DecodingSettings",
            {"min_length": 5, "max_length": 4},
            "^part: min_length=5 is above",
        ),
        ("metrics", "nmt.metrics.Rouge", {"kind": "rouge9"}, "^part.kind=rouge9: Input should be 'rouge1'"),
        ("callbacks", "nmt.training.callbacks.Checkpoints", {"keep": True}, "^part.keep=true: .* integer"),
        (
            "averaging",
            "nmt.training.callbacks.ExponentialMovingAverage",
            {"decay": None},
            "^part.decay=null: .* valid number",
        ),
        ("optimizer", "torch.optim.Adam", {"lr": "fast"}, "^part.lr=fast: Input should be a valid number"),
        (
            "trainer",
            "lightning.Trainer",
            {"precision": "32-true", "devices": -7, "accelerator": "cpu"},
            "^part: ",
        ),
    ],
)
def test_what_is_built_has_the_settings_that_it_declares(place, target, settings, message):
    partial = {"_partial_": True} if place == "optimizer" else {}
    with pytest.raises(UserError, match=message) as caught:
        build(node(target, **partial, **settings), place)
    assert len(str(caught.value).splitlines()) == 1


def test_what_the_program_gives_itself_is_no_setting():
    with pytest.raises(UserError, match=r"^part.beam_size=3 has no effect in this program: leave it out"):
        build(node("nmt.decoding.DecodingSettings", beam_size=3), "decoding", beam_size=4)
    found = build(node("nmt.decoding.DecodingSettings", beam_size=3), "decoding")
    assert found == DecodingSettings(beam_size=3)


def test_what_is_called_later_names_its_setting():
    with pytest.raises(UserError, match=r"^optimizer: 'x' is wrong"), errors_of("optimizer"):
        raise ValueError("'x' is wrong")


# What may be built


@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("content", "nmt.attention.GeneralAttention"),
        ("attention", "nmt.attention.no_attention"),
        ("normalizer", "nmt.attention.masks.masked_softmax"),
        ("words", "nmt.encoders.RecurrentEncoder"),
        ("reader", "nmt.data.corpus.read_files"),
        ("metrics", "nmt.metrics.Bleu"),
        ("logger", "nmt.training.callbacks.TensorBoard"),
        ("scheduler", "nmt.training.schedules.cosine"),
        ("optimizer", "torch.optim.SGD"),
        ("trainer", "lightning.Trainer"),
        ("callbacks", "lightning.pytorch.callbacks.Timer"),
        ("logger", "lightning.pytorch.loggers.CSVLogger"),
    ],
)
def test_each_place_builds_what_is_for_it_and_no_other_does(place, target):
    assert may_build(target, place)
    same = {
        "words": ("encoder", "sentences"),
        "content": ("attention",),
        "metrics": ("bleu", "chrf", "macro_f1"),
    }
    for other in PLACES.keys() - {place, *same.get(place, ())}:
        assert not may_build(target, other), other


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "nmt.models.base.torch.load",
        "nmt.attention.base.torch",
        "nmt.attention.Nothing",
        "nmt.attention.masks.padding_mask",
        "nmt.data.corpus._key",
        "nmt.data.corpus.cached_dataset",
        "nmt.run.paths.write_atomically",
        "nmt.training.callbacks.tensorboard.EventFile",
        "nmt.training.callbacks.summary.sys.exit",
        "nmt.training.schedules.UserError",
        "torch.optim.optimizer.os.system",
        "torch.load",
        "lightning.pytorch.callbacks.model_checkpoint.os.system",
        "hydra.utils.get_method",
        "my_lab.Mine",
        5,
        None,
        ["os.system"],
    ],
)
def test_a_run_may_build_nothing_else(target):
    """Wherever it stands; and the line names no module to trust, as the run could be a stranger's."""
    places = [{"a": [[{"_target_": target}]]}, *({place: {"_target_": target}} for place in PLACES)]
    for hidden in places:
        with pytest.raises(UserError, match="a run may not build this") as caught:
            check_buildable(OmegaConf.create(hidden))
        assert "trusted" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"_args_": [{}]}, "attention._args_: a run may not set this"),
        ({"_recursive_": False}, "attention._recursive_: a run may not set this"),
        ({"_convert_": "none"}, "attention._convert_: a run may not set this"),
        ({"content": node("nmt.attention.DotAttention")}, "attention.content._partial_ must be true"),
        ({"content": {"a": 1}}, "attention.content={.*}: Input should be callable"),
        ({"content": "os.system"}, "attention.content=os.system: Input should be callable"),
        (
            {"window": node("nmt.attention.DotAttention")},
            "attention.window._target_=.*may not build this here",
        ),
        ({"window": [node("nmt.attention.DotAttention")]}, "may not build this here, where nothing is built"),
    ],
)
def test_types_are_checked_before_anything_is_built(settings, message):
    target = {"_target_": "nmt.attention.MonotonicLocalAttention", "_partial_": True}
    with pytest.raises(UserError, match=message):
        check_buildable(OmegaConf.create({"attention": target | settings}))


def test_a_part_is_called_later_only_where_that_is_expected():
    with pytest.raises(UserError, match=r"part\._partial_ must be false here, not true"):
        build(node("nmt.metrics.Ter", _partial_=True), "metrics")
    with pytest.raises(UserError, match=r"part\._partial_ must be true here, not false"):
        build(node("torch.optim.Adam"), "optimizer")
    scorers = {"bleu": node("nmt.decoding.DecodingSettings")}
    with pytest.raises(UserError, match=r"part\.metrics\.bleu\._target_=.*only what nmt\.metrics offers"):
        build(node("nmt.training.callbacks.ScoreValidation", num_samples=1, metrics=scorers), "callbacks")
    for value in ({"a": 1}, 3):
        with pytest.raises(UserError, match=r"metrics\.bleu is no metric: give its _target_"):
            build(
                node("nmt.training.callbacks.ScoreValidation", num_samples=1, metrics={"bleu": value}),
                "callbacks",
            )


# A person's own classes, from a module beside the command that they give

MY_LAB = """
from typing import Annotated

import torch
from lightning.pytorch.callbacks import Callback
from pydantic import Field

from nmt.attention import GeneralAttention
from nmt.data.corpus import read_grammar
from nmt.encoders import RecurrentEncoder


class Attention(GeneralAttention):
    def __init__(self, *, scale: Annotated[float, Field(gt=0)], **keywords):
        super().__init__(**keywords)
        self.scale = scale

    def score(self, query, keys):
        return self.scale * super().score(query, keys)


class Encoder(RecurrentEncoder):
    pass


def read(*, src_lang, tgt_lang, cache_dir, num_train, num_val, num_test, max_words, seed, splits):
    return read_grammar(**locals())


class Optimizer(torch.optim.SGD):
    pass


class Count(Callback):
    started = 0

    def on_train_start(self, trainer, pl_module):
        Count.started += 1
"""
OWN = [
    "attention._target_=my_lab.Attention",
    "data.reader=my_lab.read",
    "+attention.scale=2.0",
    "encoder._target_=my_lab.Encoder",
    "optimizer._target_=my_lab.Optimizer",
    "~optimizer.betas",
    "~optimizer.eps",
    "+callbacks.count._target_=my_lab.Count",
]


@pytest.fixture
def command(monkeypatch, tmp_path):
    """A command in this process, from a folder that holds my_lab.py."""
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    (tmp_path / "my_lab.py").write_text(MY_LAB)
    yield partial(run_composed, cwd=tmp_path)
    sys.modules.pop("my_lab", None)


def test_a_persons_own_classes_train_resume_evaluate_and_translate_where_trusted(command, tmp_path):
    trained = tmp_path / "run"
    tiny = [each for each in TINY if "alignments" not in each]
    given = [
        *tiny,
        "trainer.max_epochs=1",
        "callbacks=minimal",
        *OWN,
        f"data.cache_dir={tmp_path / 'cache'}",
        f"run_dir={trained}",
    ]
    untrusted = "my_lab.read: a run may not build this here, but only what nmt.data.corpus offers"
    refused(command("train", *given), untrusted)
    assert not (trained / "config.yaml").exists()
    refused(
        command("train", *given, "+attention.scale=-1", "trusted=[my_lab]"),
        "attention.scale=-1: Input should be greater than 0",
    )
    assert command("train", *given, "trusted=[my_lab]").status == 0
    assert "trusted" not in (trained / "config.yaml").read_text()
    with (trained / "config.yaml").open("a") as file:  # a run's own word counts for nothing
        file.write("trusted: [my_lab]\n")

    asked = {
        "train": [f"resume={trained}", "trainer.max_epochs=2"],
        "evaluate": [f"run={trained}", "num_bootstrap=0", "decoding=greedy"],
        "compare": [f"runs={trained}", "num_bootstrap=2", "num_trials=1"],
        "translate": [f"run={trained}", "decoding=greedy"],
    }
    for name, arguments in asked.items():
        said = "callbacks.count=" if name == "train" else "may not build this here"
        refused(command(name, *arguments, stdin=b"a house .\n"), said)
        assert command(name, *arguments, "trusted=[my_lab]", stdin=b"a house .\n").status == 0
    assert sys.modules["my_lab"].Count.started == 2
    with pytest.raises(UserError, match="may not build this here"):
        Run.load(trained)
    assert Run.load(trained, trusted=["my_lab"]).translator.decoder.attention.scale == 2.0
