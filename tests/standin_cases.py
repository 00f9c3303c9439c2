"""What must hold on a device that is not the CPU. Run by `test_devices.py`, in a process of its own."""

import copy
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt import Run
from nmt.benchmark import TrainingStep
from nmt.config.build import build
from nmt.data.batching import Batch, collate
from nmt.decoding.forced import force_decode
from nmt.layers.dropout import Dropout
from nmt.models.ensemble import EnsembleTranslator
from nmt.run.paths import load_config
from nmt.training.module import TranslationModule
from nmt.training.resume import resume_run
from nmt.training.schedules import constant
from nmt.training.train import train as run_training
from tests import commands
from tests.commands import CONFIGS
from tests.searches import search
from tests.small import SMALL
from tests.standin import DEVICE, NAME, DeviceTensor, waits

PAD, BOS, EOS, VOCAB = 0, 1, 2, 19


def compose(*overrides: str):
    return commands.compose("train", "name=tiny", *overrides)


# ------------------------------------------------------------------------------------------ the stand-in itself


def test_it_computes_what_the_cpu_does():
    weight = torch.randn(4, 3, requires_grad=True)
    x = torch.randn(5, 4)
    there = weight.detach().to(DEVICE).requires_grad_()
    for w, inputs in ((weight, x), (there, x.to(DEVICE))):
        (inputs @ w).tanh().square().sum().backward()
    assert there.device == there.grad.device == DEVICE
    torch.testing.assert_close(there.grad.cpu(), weight.grad)


def test_tensors_of_both_devices_do_not_meet():
    with pytest.raises(RuntimeError, match="on the CPU"):
        torch.ones(3, device=DEVICE) + torch.ones(3)
    assert (torch.ones(3, device=DEVICE) + torch.tensor(1.0)).tolist() == [2, 2, 2]


def test_it_counts_how_often_the_cpu_waits():
    x = torch.ones(3, device=DEVICE)
    assert waits(lambda: x + x) == 0
    for work in (x.tolist, x.cpu, x.sum().item, x.nonzero, lambda: x[x > 0], lambda: bool(x.any())):
        assert waits(work) == 1


# ------------------------------------------------------------------------- models, losses and every way to decode

CELLS = {"lstm": "update_then_attend", "gru_layer_norm": "conditional"}
STACKED = ("decoder.num_layers=2", "encoder.num_layers=2", "encoder.residual=true", "decoder.residual=true")
DROPOUT = ("model.dropout=0.3", "model.word_dropout=0.1", "decoder.attention_dropout=0.1")
MODELS = [
    *((f"attention={file.stem}",) for file in sorted((CONFIGS / "attention").glob("*.yaml"))),
    *((f"model={cell}", f"wiring={wiring}", *STACKED) for cell, wiring in CELLS.items()),
    ("wiring.input_feeding=true", "normalizer=sparsemax", "decoder.gradient_checkpointing=true"),
    ("normalizer=entmax15",),
    ("kernels=plain",),
    ("r_drop=3", "guided_alignment=1"),
    DROPOUT,
    ("model=transformer",),
    ("model=transformer", "positions=learned", "encoder.pre_norm=false", "decoder.pre_norm=false",
     "decoder.alignment_layer=1", "decoder.gradient_checkpointing=true"),
    ("model=transformer", "r_drop=3", "guided_alignment=1"),
    ("model=transformer", "encoder.activation_dropout=0.1", "decoder.activation_dropout=0.1", *DROPOUT),
]  # fmt: skip
SMALL_TRANSFORMER = (
    "model.size=8",
    "encoder.num_heads=2",
    "decoder.num_heads=2",
    "encoder.feedforward_size=8",
    "decoder.feedforward_size=8",
)


def make_step(*overrides: str) -> TrainingStep:
    sizes = SMALL_TRANSFORMER if "model=transformer" in overrides else SMALL
    if {"attention=hierarchical", "attention=sentences"} & set(overrides):
        sizes = ("model.size=8",)  # these bring an encoder of their own
    cfg = compose(*sizes, *overrides)
    torch.manual_seed(0)
    ids = {"src_vocab_size": VOCAB, "tgt_vocab_size": VOCAB, "joint_vocabulary": True, "separator_id": 4}
    module = TranslationModule(
        build(cfg.model, "model", **ids, pad_id=PAD, bos_id=BOS, eos_id=EOS),
        optimizer=partial(torch.optim.SGD, lr=0.1),
        scheduler=partial(constant, warmup_steps=0),
        label_smoothing=0.1,
        guided_alignment=cfg.guided_alignment,
        r_drop=cfg.r_drop,
    ).double()
    if not set(DROPOUT) & set(overrides):
        for dropout in (each for each in module.modules() if isinstance(each, Dropout)):
            dropout.p = 0.0
    return on(torch.device("cpu"), module, cfg.kernels)


def on(device: torch.device, module: TranslationModule, kernels: str) -> TrainingStep:
    module = copy.deepcopy(module).to(device)
    optimizer = module.optimizer_factory(module.parameters())
    return TrainingStep(module, optimizer, clip_norm=1.0, precision="32-true", kernels=kernels)


def make_batch() -> Batch:
    rng = np.random.default_rng(0)
    rows = [
        {
            "index": i,
            "src_ids": [*rng.integers(3, VOCAB, n), EOS],
            "tgt_ids": [*rng.integers(3, VOCAB, m), EOS],
        }
        for i, (n, m) in enumerate(rng.integers(1, 9, (4, 2)))
    ]
    batch = collate(rows, pad_id=PAD, bos_id=BOS)
    guide = torch.rand(*batch.tgt_out.shape, batch.src.size(1), dtype=torch.float64)
    return batch._replace(guide=guide / guide.sum(dim=-1, keepdim=True))


def moved(batch: Batch, device: torch.device) -> Batch:
    return Batch(*(None if tensor is None else tensor.to(device) for tensor in batch))


def everything(
    step: TrainingStep, batch: Batch, *, every_search: bool
) -> tuple[list[list[int]], list[torch.Tensor]]:
    """What comes out of two steps of training, a beam search and forced decoding: pieces, and numbers.

    every_search: decode in each way, by an ensemble too, which the kind of the model does not change.
    """
    numbers = []
    for _ in range(2):
        numbers.append(step.loss(batch).smoothed.detach())
        step(batch)
    numbers += [parameter.detach() for parameter in step.module.parameters()]
    model = step.module.translator.eval()
    attends = model.has_attention
    settings = [
        {"beam_size": 3, "num_best": 2, "length_alpha": 1.0, "no_repeat_ngram_size": 2, "min_length": 2},
        {},
        {"beam_size": 2, "prefixes": batch.tgt_out[:, :1], "coverage_beta": 0.2 if attends else 0.0},
        {"sample": True, "num_best": 2, "top_k": 4, "top_p": 0.9, "temperature": 0.8, "seed": 3},
    ]
    found = []
    for each in (model, EnsembleTranslator([model, model]).eval())[: 1 + every_search]:
        for keywords in settings if every_search else settings[:1]:
            found += search(each, batch.src, max_length=5, need_weights=attends, **keywords)
        found.append(force_decode(each, batch.src, batch.tgt_in, batch.tgt_out, need_weights=attends))
    hypotheses = [hypothesis for row in found for hypothesis in row]
    numbers += [torch.tensor(hypothesis.score) for hypothesis in hypotheses]
    numbers += [hypothesis.weights for hypothesis in hypotheses if hypothesis.weights is not None]
    return [hypothesis.ids for hypothesis in hypotheses], numbers


@pytest.mark.parametrize("overrides", MODELS, ids=" ".join)
def test_a_device_trains_and_decodes_as_the_cpu_does(overrides):
    step, batch = make_step(*overrides), make_batch()
    there = on(DEVICE, step.module, step.kernels)
    assert all(type(each) is DeviceTensor for each in there.module.state_dict().values())
    every_search = overrides in (MODELS[0], ("model=transformer",))
    pieces, numbers = everything(there, moved(batch, DEVICE), every_search=every_search)
    if set(DROPOUT) & set(overrides):
        return  # other random numbers
    expected_pieces, expected_numbers = everything(step, batch, every_search=every_search)
    assert pieces == expected_pieces
    for number, expected in zip(numbers, expected_numbers, strict=True):
        torch.testing.assert_close(number.cpu(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("model", ["gru", "transformer"])
def test_the_cpu_seldom_waits(model):
    """Once a training step, for how many pieces are no padding, and once for each piece of a translation."""
    step = make_step(f"model={model}")
    step = on(DEVICE, step.module, step.kernels)
    batch = moved(make_batch(), DEVICE)
    step(batch)
    assert waits(lambda: step(batch)) <= 1
    translator = step.module.translator.eval()
    for keywords in ({}, {"beam_size": 3, "length_alpha": 1.0}, {"sample": True, "seed": 1}):
        short, long = (
            waits(lambda n=n, k=keywords: search(translator, batch.src, min_length=n, max_length=n, **k))
            for n in (5, 15)
        )
        assert long - short == 10


# -------------------------------------------------------------------------------------------------- whole runs

TINY = (
    "data.num_train=60",
    "data.num_val=2",
    "data.num_test=2",
    "data.max_words=8",
    "data.tokenizer.vocab_size=200",
    "trainer.max_epochs=2",
    "trainer.log_every_n_steps=2",
    "trainer.enable_progress_bar=false",
    "trainer.precision=64-true",
    "scheduler.warmup_steps=4",
    "decoding.beam_size=2",
    "decoding.max_length=10",
    "model.dropout=0",
)
RUNS = {
    "gru": ("attention=coverage", *SMALL, "trainer.gradient_clip_val=0.5"),
    "transformer": (
        "model=transformer",
        *SMALL_TRANSFORMER,
        "averaging=ema",
        "averaging.decay=0.9",
        "guided_alignment=1",
        "trainer.accumulate_grad_batches=2",
        "callbacks.checkpoint.keep=2",
        "data.tokenizer.sampling=0.1",
    ),
}
THERE = (f"trainer.accelerator={NAME}", f"+trainer.strategy={NAME}")


def train(directory: Path, *overrides: str) -> tuple[dict, dict]:
    """Its weights, all on the CPU, and its scores."""
    run_training(compose(*overrides, f"run_dir={directory}", f"data.cache_dir={directory.parent / 'cache'}"))
    checkpoint = torch.load(directory / "checkpoints" / "last.ckpt", map_location="cpu", weights_only=True)
    return checkpoint["state_dict"], json.loads((directory / "metrics.json").read_text("utf-8"))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_a_device_is_that_of_the_cpu(tmp_path, name):
    weights, scores = train(tmp_path / "there", *TINY, *RUNS[name], *THERE)
    expected_weights, expected_scores = train(
        tmp_path / "here", *TINY, *RUNS[name], "trainer.accelerator=cpu"
    )
    torch.testing.assert_close(weights, expected_weights, rtol=1e-3, atol=1e-5)
    assert scores["bleu"] == expected_scores["bleu"]
    run = Run.load(tmp_path / "there", device=NAME)
    assert run.device == DEVICE
    lines = ["the teacher reads a book .", "", "a bird sleeps ."]
    assert [each.text for each in run.translate(lines)] == [
        each.text for each in Run.load(tmp_path / "there", device="cpu").translate(lines)
    ]


@pytest.mark.filterwarnings("ignore:You're resuming")  # our sampler has the position
def test_a_run_on_a_device_goes_on_from_between_two_logged_steps(tmp_path):
    shared = [
        *TINY,
        *RUNS["gru"],
        *THERE,
        "callbacks=minimal",
        "scheduler=constant",
        "trainer.max_epochs=9",
        "optimizer=muon",
    ]
    for name, steps in {"whole": 5, "parts": 3}.items():
        train(tmp_path / name, *shared, f"trainer.max_steps={steps}")
    changes = [f"resume={tmp_path / 'parts'}", *THERE, "trainer.max_steps=5"]  # a run brings no strategy
    resume_run(compose(*changes), load_config(tmp_path / "parts"), changes)
    whole, parts = (
        torch.load(tmp_path / name / "checkpoints" / "last.ckpt", map_location="cpu", weights_only=True)
        for name in ("whole", "parts")
    )
    assert whole["global_step"] == parts["global_step"] == 5
    assert whole["training"][0]["train_tokens"] == parts["training"][0]["train_tokens"]
    torch.testing.assert_close(whole["state_dict"], parts["state_dict"], rtol=0, atol=0)
