"""The training step: losses as sums, averaged once over the tokens of an optimizer step."""

import sys
from functools import partial
from types import SimpleNamespace

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from nmt import kernels
from nmt.attention import GeneralAttention
from nmt.attention.masks import masked_softmax
from nmt.data.batching import collate
from nmt.decoders import UpdateThenAttend
from nmt.errors import UserError
from nmt.layers.cells import GRULayer
from nmt.training import schedules
from nmt.training.callbacks import AtomicCheckpointIO
from nmt.training.module import TranslationModule
from tests.translators import recurrent_translator

LENGTHS = [(3, 9), (5, 2), (4, 4), (7, 3)]  # uneven on purpose


def make_module(
    learning_rate: float = 0.5, guided_alignment: float = 0.0, r_drop: float = 0.0, dropout: float = 0.0
) -> TranslationModule:
    torch.manual_seed(7)
    translator = recurrent_translator(
        src_vocab_size=11,
        tgt_vocab_size=11,
        joint_vocabulary=True,
        pad_id=0,
        bos_id=2,
        eos_id=3,
        embedding_size=6,
        hidden_size=5,
        num_layers=1,
        dropout=dropout,
        word_dropout=0.0,
        residual=False,
        tie_output=True,
        tie_source=True,
        gradient_checkpointing=False,
        cell=GRULayer,
        encoder_size=4,
        num_encoder_layers=1,
        output_size=None,
        attention_dropout=0.0,
        wiring=partial(UpdateThenAttend, input_feeding=False),
        attention=partial(GeneralAttention, temperature=1.0, normalizer=masked_softmax),
    )
    return TranslationModule(
        translator,
        optimizer=partial(torch.optim.SGD, lr=learning_rate),
        scheduler=partial(schedules.constant, warmup_steps=0),
        label_smoothing=0.1,
        guided_alignment=guided_alignment,
        r_drop=r_drop,
    ).double()


def examples():
    generator = torch.Generator().manual_seed(3)
    rows = []
    for index, lengths in enumerate(LENGTHS):
        src, tgt = (torch.randint(4, 11, (n,), generator=generator).tolist() for n in lengths)
        rows.append({"index": index, "src_ids": [*src, 3], "tgt_ids": [*tgt, 3]})
    return rows


def fit(module: TranslationModule, batch_size: int, accumulate: int, clip: float | None, tmp_path) -> dict:
    loader = DataLoader(
        examples(), batch_size=batch_size, collate_fn=partial(collate, pad_id=0, bos_id=2), num_workers=0
    )
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        limit_val_batches=0,
        accumulate_grad_batches=accumulate,
        gradient_clip_val=clip,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(tmp_path),
        plugins=[AtomicCheckpointIO()],
    )
    trainer.fit(module, train_dataloaders=loader)
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
@pytest.mark.parametrize("clip", [None, 0.05])
def test_accumulating_uneven_batches_equals_one_batch(tmp_path, clip):
    whole = fit(make_module(), batch_size=4, accumulate=1, clip=clip, tmp_path=tmp_path)
    for batch_size, accumulate in ((1, 4), (2, 2), (3, 4)):
        parts = fit(make_module(), batch_size, accumulate, clip, tmp_path)
        for name, value in whole.items():
            torch.testing.assert_close(parts[name], value, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
@pytest.mark.parametrize("guided_alignment", [0.0, 0.3])
def test_a_step_is_gradient_descent_on_the_mean_over_tokens(guided_alignment, tmp_path, monkeypatch):
    """Guided alignment adds the weighted cross entropy of attention."""
    rows = [row | {"links": [0, 1, 1, 0]} for row in examples()]
    monkeypatch.setattr(sys.modules[__name__], "examples", lambda: rows)
    module = make_module(guided_alignment=guided_alignment)
    batch = collate(rows, pad_id=0, bos_id=2)
    model = module.translator
    logits, weights = model(model.encode(batch.src, batch.src != 0), batch.tgt_in, need_weights=True)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.tgt_out.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum"
    )
    loss = loss - guided_alignment * (weights[:, 0, 1].log().sum() + weights[:, 1, 0].log().sum())
    names, parameters = zip(*module.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss / (batch.tgt_out != 0).sum(), parameters)
    expected = {
        name: (parameter - 0.5 * gradient).detach()
        for name, parameter, gradient in zip(names, parameters, gradients, strict=True)
    }
    trained = fit(module, batch_size=4, accumulate=1, clip=None, tmp_path=tmp_path)
    for name, value in expected.items():
        torch.testing.assert_close(trained[name], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["fast", "plain"])
@pytest.mark.parametrize("guided_alignment", [0.0, 0.3])
def test_r_drop_reads_a_batch_twice_with_dropouts_of_its_own(guided_alignment, name):
    """By hand, from the two copies' logits under the same random numbers; and the parts of a batch sum to it."""
    rows = [row | {"links": [0, 1, 1, 0]} for row in examples()]
    module = make_module(guided_alignment=guided_alignment, r_drop=2.0, dropout=0.4).train()
    batch = collate(rows, pad_id=0, bos_id=2)
    parameters = list(module.parameters())
    with kernels.using(name):
        torch.manual_seed(5)
        loss = module.loss_of(batch)
        found = torch.autograd.grad(loss.smoothed, parameters)
    model, real = module.translator, batch.tgt_out != 0
    torch.manual_seed(5)
    with kernels.using("plain"):
        src = torch.cat((batch.src, batch.src))
        logits, weights = model(
            model.encode(src, src != 0), torch.cat((batch.tgt_in, batch.tgt_in)), need_weights=True
        )
    p, q = logits.log_softmax(dim=-1).chunk(2)
    assert not torch.allclose(p, q)
    expected = 2.0 / 4 * (p.exp() * (p - q) + q.exp() * (q - p))[real].sum()
    for each, attended in ((p, weights[:4]), (q, weights[4:])):
        nll = -each.gather(-1, batch.tgt_out.unsqueeze(-1)).squeeze(-1)
        expected = expected + (0.9 * nll - 0.1 * each.mean(dim=-1))[real].sum() / 2
        guide = attended[:, 0, 1].log().sum() + attended[:, 1, 0].log().sum()
        expected = expected - guided_alignment * guide / 2
    torch.testing.assert_close(loss.smoothed, expected, rtol=0, atol=1e-10)
    assert int(loss.num_tokens) == int(real.sum())
    for ours, theirs in zip(found, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def fit_and_validate(module: TranslationModule, tmp_path, **settings) -> L.Trainer:
    """Two batches an epoch."""
    loader = DataLoader(examples(), batch_size=2, collate_fn=partial(collate, pad_id=0, bos_id=2))
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,  # as every run of the package
        default_root_dir=str(tmp_path),
        **settings,
    )
    trainer.fit(module, train_dataloaders=loader, val_dataloaders=loader)
    return trainer


NO_WORKERS = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*sync_dist=True")


@NO_WORKERS
@pytest.mark.parametrize(
    ("settings", "validations"),
    [({"max_epochs": 4, "check_val_every_n_epoch": 2}, 2), ({"max_epochs": 2, "val_check_interval": 1}, 4)],
)
def test_a_plateau_counts_validations_not_epochs(settings, validations, tmp_path):
    module = make_module(learning_rate=0.0)  # so that none is better than the first
    module.scheduler_factory = partial(
        schedules.plateau, factor=0.5, patience=9, monitor="val/loss", mode="min"
    )
    trainer = fit_and_validate(module, tmp_path, **settings)
    [described] = trainer.lr_scheduler_configs
    assert described.scheduler.last_epoch == validations
    assert described.scheduler.num_bad_epochs == validations - 1


@NO_WORKERS
def test_every_token_is_counted_whenever_it_is_logged(tmp_path):
    num_tokens = 3 * sum(tgt + 1 for _, tgt in LENGTHS)  # three epochs, each target with its end
    for settings in (
        {"log_every_n_steps": 100},
        {"log_every_n_steps": 4},
        {"log_every_n_steps": 1, "val_check_interval": 1},
        {"log_every_n_steps": 4, "check_val_every_n_epoch": 2},
    ):
        module = make_module()
        fit_and_validate(module, tmp_path, max_epochs=3, **settings)
        assert module.meter.tokens == num_tokens
        assert module.meter.seconds > 0


@NO_WORKERS
def test_the_logged_loss_is_of_all_batches_since_the_last(tmp_path, monkeypatch):
    """Those before a validation too."""
    module, found = make_module(learning_rate=0.0), []
    logger = SimpleNamespace(log_metrics=lambda metrics, step: found.append((step, metrics["train/loss"])))
    monkeypatch.setattr(L.LightningModule, "loggers", [logger])
    fit_and_validate(module, tmp_path, max_epochs=2, log_every_n_steps=4)
    with torch.no_grad():
        module.eval()
        whole = module(collate(examples(), pad_id=0, bos_id=2))[0]
    assert found == [(4, pytest.approx(float(whole.nll / whole.num_tokens), abs=1e-12))]


def test_validation_is_plain_whatever_training_adds():
    batch = collate(examples(), pad_id=0, bos_id=2)
    plain, regularised = make_module().eval(), make_module(r_drop=5.0, dropout=0.4).eval()
    for each in (plain, regularised):
        each.validation_step(batch, 0)
    torch.testing.assert_close(regularised._val_sums[0], plain._val_sums[0], rtol=0, atol=0)


def test_r_drop_without_dropout_is_refused():
    with pytest.raises(UserError, match=r"r_drop compares two dropouts .* set model\.dropout"):
        make_module(r_drop=1.0)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_r_drop_accumulates_to_one_batch(tmp_path, monkeypatch):
    """Dropout is drawn by the row's content, so that a batch and its parts drop the same."""

    def masked(self, x):  # the copies of a row are told apart by their half of the batch
        half = torch.arange(2).repeat_interleave(len(x) // 2).view(-1, *[1] * (x.dim() - 1))
        return x * (1 + 0.3 * half)

    monkeypatch.setattr("nmt.layers.dropout.Dropout.forward", masked)
    whole = fit(make_module(r_drop=3.0, dropout=0.1), 4, 1, None, tmp_path)
    for batch_size, accumulate in ((1, 4), (2, 2), (3, 4)):
        parts = fit(make_module(r_drop=3.0, dropout=0.1), batch_size, accumulate, None, tmp_path)
        for name, value in whole.items():
            torch.testing.assert_close(parts[name], value, rtol=0, atol=1e-12)
