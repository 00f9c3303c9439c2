"""Every attention learns, every experiment takes a step, every choice is as declared; values are of their kinds."""

import re
import tempfile
from itertools import cycle
from pathlib import Path

import hydra
import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf

from nmt.benchmark import TrainingStep
from nmt.commands import early_checks
from nmt.commands.arguments import quote_argument, text_settings
from nmt.config.build import build, check_buildable
from nmt.config.commands import check_settings
from nmt.config.types import GROUPS, INTERNAL
from nmt.data.batching import collate
from nmt.errors import UserError
from nmt.run.model import build_translator
from nmt.training.checks import check_stream
from nmt.training.losses import cross_entropy
from nmt.training.module import TranslationModule
from nmt.training.muon import make_optimizer
from nmt.training.precision import defer_choice
from nmt.training.train import _choices
from tests import commands
from tests.commands import CONFIGS, by_choices, by_hydra
from tests.small import vocabulary

ATTENTIONS = sorted(path.stem for path in (CONFIGS / "attention").glob("*.yaml"))
DOCUMENTS = ("hierarchical", "sentences")  # these bring an encoder of their own
VOCABULARY = vocabulary()


def compose(*overrides: str, name: str = "train"):
    return commands.compose(name, *overrides)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("train", []),
        (
            "train",
            ["model=transformer", "model.dropout=0.3", "data.tokenizer.joint=false", "optimizer=adamw"],
        ),
        (
            "train",
            ["attention=local_p", "content=dot", "~callbacks.early_stopping", "+optimizer.foo=[1,{a: b}]"],
        ),
        ("train", ["data=files", "data.path='a b'", "++data.max_length=5", "seed=1", "seed=2", "name=a"]),
        ("evaluate", ["run=[a,b]", "decoding=greedy", "decoding.beam_size=2"]),
    ],
)
def test_what_the_tests_compose_is_what_hydra_composes(name, overrides):
    """They ask it once for each set of choices."""
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        assert by_choices(name, overrides) == by_hydra(name, overrides)


def choices(group: str) -> list[str]:
    return sorted(file.stem for file in (CONFIGS / group).glob("*.yaml") if file.stem not in INTERNAL)


def as_declared(cfg: DictConfig) -> DictConfig:
    """The configuration, after a check of all its settings against their declared types."""
    check_settings(cfg, "train")
    defer_choice(cfg.trainer)
    check_buildable(cfg)
    return cfg


# Attentions, contents and experiments are checked where they are built. Of a model's groups, one is chosen at a time.
OF_MODEL = ("model", "encoder", "decoder", "cell", "wiring", "normalizer", "positions")
OTHERS = [
    group.name for group in GROUPS if group.name not in ("attention", "content", "experiment", *OF_MODEL)
]
IN_MODEL = [(group, choice) for group in OF_MODEL for choice in choices(group)]


@pytest.mark.parametrize("number", range(max(len(IN_MODEL), *(len(choices(group)) for group in OTHERS))))
def test_the_settings_of_every_choice_are_as_declared(number):
    """A choice of the model's and one of each other group at a time."""
    chosen = {group: choices(group)[number % len(choices(group))] for group in OTHERS}
    chosen |= [IN_MODEL[number % len(IN_MODEL)]]
    given = [f"{group}={choice}" for group, choice in chosen.items()]
    given += ["data.path=x", "data.src_lang=en", "data.tgt_lang=vi"] * (chosen["data"] == "files")
    as_declared(compose(*given, "run_dir=x", "name=x"))


def of_experiment(name: str, callbacks: str = "default") -> DictConfig:
    own = name.startswith(("bible", "evbnews", "iwslt14", "own_text", "multi30k_transformer_guided"))
    languages = ["data.src_lang=en", "data.tgt_lang=vi"] if name.startswith("own_text") else []
    given = ["data.path=x", *languages] if own else []
    given += ["model.size=16", "run_dir=here", "name=x"]
    return compose(f"experiment={name}", f"callbacks={callbacks}", *given)


def take_step(cfg: DictConfig) -> TranslationModule:
    """The module of a configuration after an optimizer step on three random pairs."""
    module = TranslationModule(
        build_translator(cfg.model, VOCABULARY),
        optimizer=build(cfg.optimizer, "optimizer"),
        scheduler=build(cfg.scheduler, "scheduler"),
        label_smoothing=cfg.label_smoothing,
        guided_alignment=cfg.guided_alignment,
        r_drop=cfg.r_drop,
    )
    rows = [
        {
            "index": n,
            "src_ids": [*range(5, 9 + n), 4, 9, 3],
            "tgt_ids": [*range(9, 11 + n), 3],
            "links": [0, 1],
        }
        for n in range(3)
    ]
    optimizer = make_optimizer(module.optimizer_factory, module.translator)
    step = TrainingStep(module, optimizer, clip_norm=1.0, precision="32-true", kernels=cfg.kernels)
    step(collate(rows, pad_id=0, bos_id=2))
    return module


@pytest.mark.parametrize("experiment", choices("experiment"))
def test_an_experiment_takes_a_step_and_keeps_the_checkpoint_with_the_best_score_of_its_task(experiment):
    cfg = as_declared(of_experiment(experiment))
    after = [*take_step(cfg).translator.parameters()]
    torch.manual_seed(0)
    before = build_translator(cfg.model, VOCABULARY).parameters()
    assert not all(torch.equal(*pair) for pair in zip(before, after, strict=True))
    assert all(each.isfinite().all() for each in after)
    found = cfg.callbacks
    of_labels = {"classification": "val/chrf", "document_classification": "val/macro_f1"}
    assert found.checkpoint.monitor == of_labels.get(experiment, "val/bleu")
    assert found.early_stopping.monitor == found.checkpoint.monitor
    assert found.early_stopping.mode == found.checkpoint.mode


def test_experiments_choose_a_decoding_and_do_not_change_it():
    """A value of their own would win over decoding= on the command line."""
    files = (CONFIGS / "experiment").glob("*.yaml")
    assert [file.stem for file in files if "decoding" in OmegaConf.load(file)] == []


@pytest.mark.parametrize("experiment", ["classification", "document_classification", "multi30k_gru"])
def test_an_experiment_goes_with_minimal_callbacks(experiment):
    found = of_experiment(experiment, "minimal").callbacks
    assert [name for name, each in found.items() if "_target_" not in each] == []


@pytest.mark.parametrize(
    "overrides",
    [
        ["content=dot"],
        ["content=dot", "attention=none"],
        ["normalizer=sparsemax", "attention=none"],
        ["wiring=conditional", "model=transformer"],
        ["attention=luong_dot", "model=transformer"],
    ],
)
def test_a_choice_that_could_not_take_effect_does_not_compose(overrides):
    with pytest.raises(ConfigCompositionException, match="Could not override"):
        compose(*overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["positions=learned"],
        ["model=transformer", "cell=lstm"],
        ["data=files", "data.path=.", "data.buffer_pairs=100"],
    ],
)
def test_what_could_not_take_effect_is_refused(overrides):
    with pytest.raises(UserError, match=r"= has no effect with.*: leave it out"):
        early_checks.check_train(compose(*overrides), overrides)


def test_a_stream_of_pairs_that_fill_a_batch_each_is_not_dealt_to_two_processes():
    cfg = compose(
        "data=files", "data.path=.", "data.streaming=5", "data.max_length=128", "data.max_tokens=255"
    )
    check_stream(cfg, num_processes=1)
    with pytest.raises(
        UserError, match=r"^data\.max_length=128 is more than half of data\.max_tokens=255: .* 2 proc"
    ):
        check_stream(cfg, num_processes=2)


@pytest.mark.parametrize(
    ("model", "groups"),
    [("gru", {"attention": "luong_general", "wiring": "update_then_attend"}), ("transformer", {})],
)
def test_a_run_writes_down_the_groups_that_have_a_choice(model, groups):
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        cfg = hydra.compose("train", overrides=[f"model={model}"], return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    try:
        choices = _choices()
    finally:
        HydraConfig.instance().cfg = None
    assert choices["model"] == model
    assert {key: choices[key] for key in choices if key in ("attention", "wiring", "content")} == groups


# The wirings that are not an attention's own are tested for every score in test_recurrent.py.
PARTS = ("encoder", "decoder", "model")
WITH_WIRING = [(name, wiring) for name in ("coverage", "multi_head") for wiring in choices("wiring")]


@pytest.mark.parametrize(("attention", "wiring"), [*((name, "its own") for name in ATTENTIONS), *WITH_WIRING])
def test_every_attention_learns_four_pairs_by_heart(attention, wiring):
    sizes = ["model.size=16"] if attention in DOCUMENTS else [f"{part}.size=16" for part in PARTS]
    overrides = [f"attention={attention}", *sizes, "run_dir=x", "name=x"]
    if wiring != "its own":
        overrides.append(f"wiring={wiring}")
    model = build_translator(as_declared(compose(*overrides)).model, VOCABULARY)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    src, tgt = torch.randint(4, 20, (4, 4)), torch.randint(5, 20, (4, 2))
    tgt_in = torch.cat((torch.full((4, 1), 2), tgt), dim=1)
    tgt_out = torch.cat((tgt, torch.full((4, 1), 3)), dim=1)
    losses = []
    for _ in range(40 if wiring == "its own" else 2):
        logits, _ = model(model.encode(src, src != 0), tgt_in)
        loss = cross_entropy(logits, tgt_out, pad_id=0, label_smoothing=0.0)
        (loss.smoothed / loss.num_tokens).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.nll.item())
    assert losses[-1] < (losses[0] / 5 if wiring == "its own" else losses[0])


@pytest.mark.parametrize(
    ("content", "attention"), [*zip(choices("content"), cycle(["multi_head", "local_m", "local_p"]))]
)
def test_whatever_builds_on_a_content_score_takes_any(attention, content):
    config = compose(
        f"attention={attention}", f"content={content}", "normalizer=entmax15", "run_dir=x", "name=x"
    )
    as_declared(config)
    if attention == "multi_head" and content in ("additive", "concat"):
        assert config.attention.content.size == config.decoder.size
    model = build_translator(config.model, VOCABULARY)
    src = torch.randint(4, 20, (2, 5))
    logits, weights = model(model.encode(src, src != 0), src, need_weights=True)
    assert logits.isfinite().all()
    assert weights.shape == (2, 5, 5)
    assert config.attention.content.normalizer._target_ == "nmt.attention.masks.masked_entmax15"


# Values that are set. Each case: the command, what is set, and what the line says.

WHOLE, NUMBER, TEXT = (
    "Input should be a valid integer",
    "Input should be a valid number",
    "should be a valid string",
)
REFUSED = {
    "a large seed": ("train", ["seed=5000000000"], "seed=5000000000: Input should be less than 4294967296"),
    "more than can be counted": (
        "train", ["data=files", "data.path=.", f"data.buffer_pairs={2**70}"], r"data.buffer_pairs=\d+: .*give less than"
    ),
    "no ratio": ("train", ["data.max_ratio=null"], f"data.max_ratio=null: {NUMBER}"),
    "no finite ratio": ("train", ["data.max_ratio=nan"], "data.max_ratio=NaN: Input should be"),
    "true for a number": ("train", ["label_smoothing=true"], f"label_smoothing=true: {NUMBER}"),
    "text for a number": ("train", ["attention=bahdanau", "attention.size='3'"], f"attention.size=3: {WHOLE}"),
    "a float for a number": ("train", ["attention=bahdanau", "attention.size=3.0"], f"size=3.0: {WHOLE}"),
    "a reference": ("train", ["data.num_train=0"], "^data.num_train=0: Input should be greater than or equal to 1"),
    "in another's part": ("train", ["attention=local_m", "content.temperature=0"], "^content.temperature=0: .* than 0"),
    "one bound": ("compare", ["length_bounds=10"], "length_bounds=10: Input should be a valid array"),
    "words for bounds": ("compare", ["length_bounds=[a,b]"], rf'length_bounds=\["a", "b"\]: {WHOLE}'),
    "one beta": ("train", ["optimizer.betas=[0.9]"], r"optimizer.betas=\[0.9\]: List should have at least 2"),
    "a beta that forgets nothing": ("train", ["optimizer.betas=[0.9,1]"], r"betas=\[0.9, 1\]: .* less than 1"),
    "an infinite rate": ("train", ["optimizer.lr=inf"], "optimizer.lr=Infinity: .* finite"),
    "zero epochs": ("train", ["trainer.max_epochs=0"], "trainer.max_epochs=0: Input should be -1, or .* to 1"),
    "zero time": ("train", ["trainer.max_time=00:00:00:00"], "max_time=00:00:00:00: give DD:HH:MM:SS, above zero"),
    "minutes and seconds": ("train", ["trainer.max_time=10:00"], "trainer.max_time=10:00: give DD:HH:MM:SS"),
    "two epochs and a half": ("train", ["trainer.val_check_interval=2.5"], "val_check_interval=2.5: .* or equal to 1"),
    "negative patience": ("train", ["callbacks.early_stopping.patience=-1"], "patience=-1: .* equal to 0"),
    "a precision there is not": ("train", ["trainer.precision=8"], "trainer.precision=8: Input should be 64, 32 or 16"),
    "a number for settings": ("train", ["decoder.wiring=5"], "decoder.wiring=5: Input should be callable"),
    "a key there is not": ("train", ["+attention.foo=1"], "attention.foo: GeneralAttention has no such"),
    "no run": ("evaluate", ["run=null"], f"run=null: Input {TEXT}, or a valid array"),
    "two files for one": ("translate", ["output=[a,b]"], rf'output=\["a", "b"\]: Input {TEXT}'),
    "an empty path": ("translate", ["output="], "output=: String should have at least 1 character"),
    "a score": ("translate", ["decoding.beam_size=0"], "decoding.beam_size=0: Input should be greater"),
    "another split": ("evaluate", ["split=dev"], "split=dev: Input should be 'train', 'val' or 'test', or the name"),
    "a name that leaves the folder of runs": ("train", ["name=../../x"], r"name=\.\./\.\./x: .* log_dir"),
    "a name from the root": ("train", ["name=/x"], "name=/x: .* log_dir"),
    "a page of nothing": ("translate", ["page=a.pdf"], "page=a.pdf: give a file that ends in .html"),
}  # fmt: skip


def settled(name: str, *overrides: str):
    cfg = compose(*(quote_argument(each, text_settings(name)) for each in overrides), name=name)
    check_settings(cfg, name)
    return cfg


def checked(name: str, *overrides: str) -> None:
    """As the command does: its own settings first, then those of what is built."""
    cfg = settled(name, *overrides, *(["run_dir=here"] if name == "train" else []))
    for group in (
        "model",
        "optimizer",
        "scheduler",
        "averaging",
        "trainer",
        "callbacks",
        "metrics",
        "decoding",
    ):
        check_buildable(cfg.get(group), group)
    if name == "train" and cfg.data.get("path") is None:
        check_buildable(cfg.data, "data")


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_of_another_kind_than_its_default_is_refused(case):
    name, overrides, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        checked(name, *overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["trainer.gradient_clip_val=null", "trainer.max_time=00:01:00:00", "trainer.deterministic=warn"],
        ["trainer.max_epochs=null", "trainer.max_steps=5"],
        ["trainer.limit_train_batches=null", "trainer.limit_val_batches=3", "trainer.val_check_interval=null"],
        ["trainer.check_val_every_n_epoch=null", "trainer.val_check_interval=50", "trainer.devices=auto"],
        ["callbacks.checkpoint.every_n_minutes=null", "callbacks.alignments.num_sentences=0"],
        ["~callbacks.early_stopping"],
        ["callbacks.early_stopping=null", "trainer.max_epochs=-1", "trainer.max_time=01:00:00:00"],
        ["trainer.limit_val_batches=0", "trainer.log_every_n_steps=0", "trainer.gradient_clip_val=0"],
        ["optimizer=sgd", "optimizer.momentum=0", "optimizer.nesterov=false"],
        ["encoder.output_size=null", "optimizer.fused=null", "optimizer.lr=1"],
        ["attention=coverage", "attention.max_fertility=3"],
        ["attention=coverage_fertility", "attention.max_fertility=null"],
        ["optimizer.betas=[0,0.9]", "seed=4294967295"],
        ["experiment=bible_grc_en", "data.path=x", "data.columns=null", "data.buffer_pairs=50", "data.streaming=9"],
    ],
    ids=lambda overrides: overrides[0],
)  # fmt: skip
def test_null_and_words_are_values_where_they_mean_something(overrides):
    checked("train", *overrides)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("train", ["+foo=1"], "unknown configuration key 'foo'"),
        ("train", ["++x.y.z=1"], "unknown configuration key 'x.y.z'"),
        ("train", ["+data.max_lenght=1"], "unknown configuration key 'data.max_lenght'.*data.max_length"),
        ("train", ["trusted=[nomodule]"], r"trusted=\[nomodule\]: there is no such module"),
        ("train", ["trusted=[nomodule.part]"], r"trusted=\[nomodule.part\]: there is no such module"),
        ("translate", ["+foo=1"], "unknown configuration key 'foo'"),
    ],
)
def test_a_setting_that_nothing_reads_is_refused(name, overrides, message):
    with pytest.raises(UserError, match=message):
        early_checks.check_additions(compose(*overrides, name=name), name, overrides)


def test_settings_of_what_is_built_and_known_ones_may_be_added():
    overrides = [
        "++seed=3",
        "+trainer.strategy=ddp",
        "+callbacks.mine._target_=my.Class",
        "+callbacks.score.metrics.mine._target_=my.Metric",
        "callbacks.memory=null",
    ]
    early_checks.check_additions(compose(*overrides), "train", overrides)


@pytest.mark.parametrize("language", ["nan", "no", "off", "on", "yes", "true", "1e3", "007"])
def test_a_language_may_look_like_a_word_of_yaml(language):
    given = ["data.path=x", f"data.src_lang={language}", "data.tgt_lang=en", f"data.columns=[{language},en]"]
    cfg = settled("train", "data=files", *given)
    stored = OmegaConf.create(OmegaConf.to_yaml(cfg.data, resolve=True))  # as in config.yaml
    assert (stored.src_lang, list(stored.columns)) == (language, [language, "en"])


def test_a_path_may_look_like_a_number():
    """A directory of the year, of a date, of what YAML takes for a number or a truth."""
    for written in ("2024", "1e3", "1_000", "true", "1.50"):
        assert settled("evaluate", f"run={written}", f"output={written}").run == written
        cfg = settled("train", "data=files", f"data.path={written}", f"data.cache_dir={written}")
        assert (cfg.data.path, cfg.data.cache_dir) == (written, written)
        assert (
            settled("train", f"run_dir={written}").callbacks.checkpoint.directory == f"{written}/checkpoints"
        )
    assert settled("compare", "runs=[1,2]", "refs=5").runs == ["1", "2"]
    assert settled("compare", "runs=[1,2]", "refs=5").refs == "5"
    many = [f"{number}" * 30 for number in range(9)]  # longer than the name of a file may be
    assert settled("compare", f"runs={','.join(many)}").runs == many
    assert settled("train", "data.tokenizer.model=5").data.tokenizer.model == "5"
    assert settled("train", "data.tokenizer.model=[5,a]").data.tokenizer.model == ["5", "a"]
    assert settled("translate", "run=[5,a]", "input=null", "page=a.html").run == ["5", "a"]


@pytest.mark.parametrize("name", ["align", "benchmark", "compare", "evaluate", "translate"])
def test_a_sweep_of_what_leaves_no_folder_of_its_own_is_kept_elsewhere(name):
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        places = hydra.compose(name, return_hydra_config=True).hydra.sweep
    directory = Path(places.dir)
    assert directory == Path(places.dir)  # one of a process
    assert directory.is_relative_to(tempfile.gettempdir())
    assert places.subdir == "."


def test_the_sweep_over_every_mechanism_leaves_out_those_for_documents():
    [override] = re.findall(r"'(attention=glob\(.*\))'", CONFIGS.with_name("Makefile").read_text("utf-8"))
    swept = OverridesParser.create().parse_override(override).value()
    names = {file.stem for file in (CONFIGS / "attention").glob("*.yaml")}
    assert set(swept.filter(sorted(names))) == names - set(DOCUMENTS)
