"""Every choice on the disk composes; every attention builds and takes a training step."""

from pathlib import Path
from types import SimpleNamespace

import hydra
import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from nmt.errors import UserError
from nmt.losses import cross_entropy
from nmt.run import build_translator
from tests.test_resume import train_script

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
ATTENTIONS = sorted(path.stem for path in (CONFIGS / "attention").glob("*.yaml"))
WIRINGS = sorted(path.stem for path in (CONFIGS / "wiring").glob("*.yaml"))
CHOICES = [
    f"{path.parent.name}={path.stem}"
    for path in sorted(CONFIGS.glob("*/*.yaml"))
    if path.parent.name not in ("hydra", "experiment") and path.stem not in ("base", "stored")
] + [f"experiment={path.stem}" for path in sorted((CONFIGS / "experiment").glob("*.yaml"))]
VOCABULARY = SimpleNamespace(src_vocab_size=20, tgt_vocab_size=20, joint=True, pad_id=0, bos_id=2, eos_id=3)


def compose(*overrides: str, name: str = "train"):
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        return hydra.compose(name, overrides=list(overrides))


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes(choice):
    needs = {"content": ["attention=local_p"], "positions": ["model=transformer"]}
    compose(choice, *needs.get(choice.split("=")[0], []))


@pytest.mark.parametrize("callbacks", ["default", "minimal"])
@pytest.mark.parametrize("experiment", [each for each in CHOICES if each.startswith("experiment=")])
def test_an_experiment_goes_with_either_choice_of_callbacks(experiment, callbacks):
    found = compose(experiment, f"callbacks={callbacks}", "run_dir=here").callbacks
    assert [name for name, each in found.items() if "_target_" not in each] == []
    kept = found.checkpoint
    assert kept.monitor == ("val/chrf" if experiment == "experiment=classification" else "val/bleu")
    if callbacks == "default":
        assert (found.early_stopping.monitor, found.early_stopping.mode) == (kept.monitor, kept.mode)


@pytest.mark.parametrize(
    "overrides",
    [
        ["content=dot"],
        ["content=dot", "attention=none"],
        ["normalizer=sparsemax", "attention=none"],
        ["wiring=conditional", "model=transformer"],
        ["positions=learned"],
    ],
)
def test_a_choice_that_could_not_take_effect_does_not_compose(overrides):
    with pytest.raises(ConfigCompositionException, match="Could not override"):
        compose(*overrides)


@pytest.mark.parametrize(
    ("model", "groups"),
    [("gru", {"attention": "luong_general", "wiring": "update_then_attend"}), ("transformer", {})],
)
def test_a_run_writes_down_the_groups_that_have_a_choice(model, groups):
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        cfg = hydra.compose("train", overrides=[f"model={model}"], return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    try:
        choices = train_script._choices()
    finally:
        HydraConfig.instance().cfg = None
    assert choices["model"] == model
    assert {key: choices[key] for key in choices if key in ("attention", "wiring", "content")} == groups


def test_the_five_attentions_are_there():
    assert {"bahdanau", "luong_dot", "luong_general", "luong_concat", "none"} <= set(ATTENTIONS)


@pytest.mark.parametrize("name", ["evaluate", "translate"])
def test_the_other_commands_compose(name):
    assert OmegaConf.is_missing(compose(name=name), "run")


@pytest.mark.parametrize("wiring", ["its own", *WIRINGS])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_attention_builds_and_takes_a_training_step(attention, wiring):
    overrides = [f"attention={attention}", "model.hidden_size=8", "model.embedding_size=6"]
    if attention == "none" and wiring == "conditional":
        pytest.skip("refused: test_gru.py")
    if wiring != "its own":
        overrides.append(f"wiring={wiring}")
    model = build_translator(compose(*overrides).model, VOCABULARY)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    src, tgt_in = torch.randint(4, 20, (3, 5)), torch.randint(4, 20, (3, 4))
    losses = []
    for _ in range(2):
        logits, _ = model(model.encode(src, src != 0), tgt_in)
        loss = cross_entropy(logits, tgt_in, pad_id=0, label_smoothing=0.1).smoothed
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[1] != losses[0]


def published_wiring(name: str) -> str:
    return compose(f"attention={name}").wiring._target_.rsplit(".", 1)[-1]


def test_attentions_come_with_their_published_wiring():
    assert published_wiring("bahdanau") == "AttendThenUpdate"
    for name in ("luong_dot", "luong_general", "luong_concat", "location", "local_m", "local_p", "none"):
        assert published_wiring(name) == "UpdateThenAttend"
    for name in ("coverage", "coverage_fertility"):
        assert published_wiring(name) == "AttendThenUpdate"


def test_the_four_configurations_score_as_they_are_named():
    scores = {name: compose(f"attention={name}").model.attention for name in ATTENTIONS if name != "none"}
    classes = {name: node._target_.rsplit(".", 1)[-1] for name, node in scores.items()}
    assert classes["bahdanau"] == "AdditiveAttention"
    assert classes["luong_dot"] == "DotAttention"
    assert classes["luong_general"] == "GeneralAttention"
    assert classes["luong_concat"] == "ConcatAttention"
    assert classes["scaled_luong"] == "ScaledGeneralAttention"
    assert classes["normed_bahdanau"] == "NormedAdditiveAttention"
    assert classes["local_m"] == "MonotonicLocalAttention"
    assert classes["local_p"] == "PredictiveLocalAttention"
    assert compose("attention=none").model.attention is None


@pytest.mark.parametrize("content", sorted(path.stem for path in (CONFIGS / "content").glob("*.yaml")))
@pytest.mark.parametrize("attention", ["local_m", "local_p", "multi_head"])
def test_whatever_builds_on_a_content_score_takes_any(attention, content):
    config = compose(f"attention={attention}", f"content={content}", "normalizer=entmax15").model
    if attention == "multi_head" and content in ("additive", "concat"):
        assert config.attention.content.size == config.hidden_size
    model = build_translator(config, VOCABULARY)
    src = torch.randint(4, 20, (2, 5))
    logits, weights = model(model.encode(src, src != 0), src, need_weights=True)
    assert logits.isfinite().all()
    assert weights.shape == (2, 5, 5)
    assert config.attention.content.normalizer._target_ == "nmt.masks.masked_entmax15"


def test_a_model_builds_only_what_is_allowed():
    config = compose("attention=luong_dot").model
    config.attention._target_ = "builtins.exec"
    with pytest.raises(UserError, match=r"may not build builtins\.exec"):
        build_translator(config, VOCABULARY)
