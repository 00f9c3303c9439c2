"""The Lightning module: training and validation steps, optimizer, schedule, and logged metrics."""

import logging
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import lightning as L
import torch
from lightning.pytorch.callbacks import Timer
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from nmt import distributed, kernels
from nmt.attention.masks import padding_mask
from nmt.data.batching import Batch, of_few_shapes
from nmt.decoding import BEAM, DecodingSettings
from nmt.errors import UserError
from nmt.layers.dropout import Dropout
from nmt.models.base import Translator
from nmt.training import losses
from nmt.training.losses import LossSum, output_loss, output_r_drop
from nmt.training.meter import Meter, sum_losses
from nmt.training.muon import Muon, make_optimizer
from nmt.training.schedules import schedule, warn_of_warmup
from nmt.training.states import check_optimizers, check_states, checkpoint_errors

log = logging.getLogger(__name__)


class TranslationModule(L.LightningModule):
    """Minimises label-smoothed cross-entropy, averaged once over the target tokens of an optimizer step.

    The loss of a batch is a sum. Gradients are divided by the number of target tokens of the whole accumulation window
    over all ranks, then clipped. Logged losses are in nats per target piece, without smoothing. With `guided_alignment`
    above 0, the cross-entropy of the attention against the batch's alignments, times this number, is added (Chen et al.
    2016). With `r_drop` above 0, a batch is read twice with different dropout, and `losses.r_drop` replaces the
    cross-entropy.
    """

    # Logged by validation, with the best value; callbacks log others
    scores: ClassVar = {"val/loss": "min", "val/perplexity": "min"}

    def __init__(
        self,
        translator: Translator,
        *,
        optimizer: Callable[..., torch.optim.Optimizer],
        scheduler: Callable[..., dict[str, Any]],
        label_smoothing: float,
        guided_alignment: float,
        r_drop: float = 0.0,
        decoding: DecodingSettings = BEAM,
    ) -> None:
        super().__init__()
        if guided_alignment and not translator.has_attention:
            raise UserError(
                "guided_alignment guides attention, and this model has none: give guided_alignment=0"
            )
        if guided_alignment and any(getattr(each, "gives_zeros", False) for each in translator.modules()):
            raise UserError(
                "guided_alignment raises weights that are small; those that a sparse normalizer or a window sets to "
                "zero have no gradient: give normalizer=softmax and attention without a window, or guided_alignment=0"
            )
        if r_drop and not any(isinstance(each, Dropout) and each.p > 0 for each in translator.modules()):
            raise UserError(
                "r_drop compares two dropouts of a batch, and this model drops nothing: set model.dropout"
            )
        self.translator = translator
        self.optimizer_factory = optimizer
        self.scheduler_factory = scheduler
        self.label_smoothing = label_smoothing
        self.guided_alignment = guided_alignment
        self.r_drop = r_drop
        self.decoding = decoding  # of the final scores; validation uses its limits with greedy search
        self._recorder = kernels.Recorder()
        # A CUDA graph cannot count the sentences of a document, nor reset random numbers to compute a layer again.
        self._recordable = not translator.reads_documents and not any(
            getattr(each, "gradient_checkpointing", False) for each in translator.modules()
        )
        self.progress: dict[str, str] = {}  # values for the progress bar
        self._window_tokens: list[Tensor] = []  # since the last optimizer step
        self.meter = Meter()
        self.grad_norm = torch.tensor(float("nan"))  # of the last optimizer step, before clipping
        self.lr = float("nan")  # of the last optimizer step
        self.train_loss = 0.0  # as logged last; 0 before
        self._logged_step = 0  # the last
        self._val_sums: list[LossSum] = []

    def forward(self, batch: Batch, *, need_weights: bool = False) -> tuple[LossSum, Tensor | None]:
        """The batch's cross-entropy, and the cross-attention weights [B, T, S] if `need_weights`."""
        model = self.translator
        memory = model.encode(batch.src, padding_mask(batch.src, model.pad_id))
        features, weights = model.read(memory, batch.tgt_in, need_weights=need_weights)
        smoothing = self.label_smoothing if self.training else 0.0
        loss = output_loss(
            features, model.output, batch.tgt_out, pad_id=model.pad_id, label_smoothing=smoothing
        )
        return loss, weights

    def loss_of(self, batch: Batch) -> LossSum:
        """The training loss of a batch, guided alignment included.

        On a GPU a CUDA graph is recorded for each batch shape; batches are padded so that there are few shapes.
        """
        model = self.translator
        if not (self.training and self._recordable and kernels.records(model.output.weight)):
            return self._loss_of(batch)
        ids = {"pad_id": model.pad_id, "bos_id": model.bos_id, "eos_id": model.eos_id}
        batch = of_few_shapes(batch, **ids, max_length=model.max_length)
        loss: LossSum = self._recorder(self._loss_of, [*self.parameters()], batch)
        return loss

    def _loss_of(self, batch: Batch) -> LossSum:
        guided = self.guided_alignment > 0
        loss, weights = (
            self.read_twice(batch, need_weights=guided) if self.r_drop else self(batch, need_weights=guided)
        )
        if guided:
            assert batch.guide is not None, "a guided module needs a guided data module"
            assert weights is not None
            passes = weights.unflatten(0, (-1, len(batch.guide)))  # [1 or 2, B, T, S]
            extra = self.guided_alignment * losses.guided_alignment(passes, batch.guide) / len(passes)
            loss = loss._replace(smoothed=loss.smoothed + extra)
        return loss

    def read_twice(self, batch: Batch, *, need_weights: bool) -> tuple[LossSum, Tensor | None]:
        """The R-Drop loss of a batch, and the cross-attention weights [2B, T, S] of both passes if `need_weights`."""
        model = self.translator
        src, tgt_in = batch.src.repeat(2, 1), batch.tgt_in.repeat(2, 1)  # [2B, S], [2B, T]
        memory = model.encode(src, padding_mask(src, model.pad_id))
        features, weights = model.read(memory, tgt_in, need_weights=need_weights)
        loss = output_r_drop(
            features.unflatten(0, (2, -1)),
            model.output,
            batch.tgt_out,
            pad_id=model.pad_id,
            label_smoothing=self.label_smoothing,
            alpha=self.r_drop,
        )
        return loss, weights

    # training

    def on_train_start(self) -> None:
        """Take the rate of the first step from the schedule, which may differ from the resumed run's."""
        self._set_rates()
        self.meter.start()

    def end_schedule(self, total_steps: int) -> None:
        """End a schedule that runs to the end of training after `total_steps`, or earlier if training ends earlier."""
        total_steps = int(min(total_steps, self.trainer.estimated_stepping_batches))
        for scheduler in self._stepped_schedulers():
            again = schedule(self.scheduler_factory, scheduler.optimizer, total_steps)
            scheduler.lr_lambdas = again["scheduler"].lr_lambdas
        self._set_rates()

    def _stepped_schedulers(self) -> list[LambdaLR]:
        schedulers = [each.scheduler for each in self.trainer.lr_scheduler_configs]
        return [each for each in schedulers if isinstance(each, LambdaLR)]

    def _set_rates(self) -> None:
        """Set the rates of the next step."""
        for scheduler in self._stepped_schedulers():
            for group, rate, factor in zip(
                scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
            ):
                group["lr"] = rate * factor(scheduler.last_epoch)

    def on_train_epoch_start(self) -> None:
        self.meter.start()

    def on_train_epoch_end(self) -> None:
        self.meter.stop()

    def on_train_end(self) -> None:
        """Add the steps since the last log to the totals and free the CUDA graphs."""
        self.meter.stop()
        self.meter.count()
        self._recorder = kernels.Recorder()

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        loss = self.loss_of(batch)
        self._window_tokens.append(loss.num_tokens)
        self.meter.add(loss)
        # Undo Lightning's division by the number of accumulated batches: the loss is a sum.
        return loss.smoothed * self.trainer.accumulate_grad_batches

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Turn the gradient of the summed loss into that of the mean over the window's tokens on all ranks."""
        self.lr = optimizer.param_groups[0]["lr"]
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        # Not in half precision: bfloat16 rounds numbers above 256, float16 ends at 65,504
        dtype = torch.promote_types(gradients[0].dtype, torch.float32)
        num_tokens = torch.stack(self._window_tokens).sum().to(dtype)
        self._window_tokens.clear()
        # DDP has averaged the gradients over ranks instead of summing them
        world_size = self.trainer.world_size
        if world_size > 1:
            num_tokens = self.trainer.strategy.reduce(num_tokens, reduce_op="sum")
        torch._foreach_mul_(gradients, world_size / num_tokens)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        limit = gradient_clip_val or float("inf")  # for Lightning, 0 means no limit
        self.grad_norm = torch.nn.utils.clip_grad_norm_(self.parameters(), limit)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_index: int) -> None:
        step = self.trainer.global_step
        interval = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if interval == 0 or step == self._logged_step or step % interval:
            return
        loss, num_tokens, seconds = self.meter.count()
        tokens_per_second = num_tokens / seconds
        metrics = {
            "train/loss": loss / num_tokens,
            "train/tokens_per_second": tokens_per_second,
            "train/lr": self.lr,
            "train/grad_norm": float(self.grad_norm),
        }
        self._logged_step, self.train_loss = step, metrics["train/loss"]
        for logger in self.loggers:
            logger.log_metrics(metrics, step=step)
        self.progress["loss"] = f"{metrics['train/loss']:.3f}"
        self.progress["tokens/s"] = f"{tokens_per_second:,.0f}"

    def on_validation_start(self) -> None:
        self.meter.stop()

    def on_validation_end(self) -> None:
        """Step the schedule if it follows a validation score."""
        for each in self.trainer.lr_scheduler_configs:
            if each.reduce_on_plateau:
                if each.monitor not in self.trainer.callback_metrics:
                    raise UserError(f"scheduler.monitor={each.monitor}: validation gives no such score")
                scheduler: Any = each.scheduler
                scheduler.step(float(self.trainer.callback_metrics[each.monitor]))
        self.meter.start()

    # validation

    def on_validation_epoch_start(self) -> None:
        self._val_sums.clear()

    def validation_step(self, batch: Batch, batch_index: int) -> dict[str, Tensor | None]:
        """Accumulate the loss; return the weights [B, T, S] of the references for callbacks that draw them."""
        loss, weights = self(batch, need_weights=True)
        self._val_sums.append(loss)
        return {"weights": weights}

    def on_validation_epoch_end(self) -> None:
        nll, num_tokens = distributed.sum_over_ranks(*sum_losses(self._val_sums))
        loss = torch.tensor(nll / num_tokens)
        # Lightning's default is one step less.
        self.log("step", float(self.trainer.global_step), rank_zero_only=False)
        self.log("val/loss", loss, rank_zero_only=False)
        self.log("val/perplexity", loss.exp(), rank_zero_only=False)

    # resuming

    def record(self) -> dict[str, Any]:
        """The totals of this rank, so that a resumed run logs the same numbers."""
        return self.meter.state_dict() | {
            "logged_step": self._logged_step,
            "train_loss": self.train_loss,
            "progress": dict(self.progress),
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["training"] = distributed.gather(self.record())

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        with checkpoint_errors("the checkpoint"):
            for each in checkpoint["training"]:
                each.setdefault("train_loss", 0.0)  # checkpoints of earlier versions have none
            check_states(checkpoint, self)
            state = checkpoint["training"][distributed.rank()]
            shown = {str(name): str(value)[:20] for name, value in state["progress"].items()}
        self.meter.load_state_dict(state)
        self._logged_step, self.train_loss = state["logged_step"], state["train_loss"]
        self.progress.update({name: value for name, value in shown.items() if f"{name}{value}".isprintable()})

    def on_fit_start(self) -> None:
        """Check the stored state of the optimizer of a resumed run before Lightning restores it."""
        if checkpoint := self.trainer._checkpoint_connector._loaded_checkpoint:
            with checkpoint_errors("the checkpoint"):
                check_optimizers(checkpoint, self.trainer)

    # the update rule

    def configure_optimizers(self) -> Any:
        optimizer = make_optimizer(self.optimizer_factory, self.translator, precision=self.trainer.precision)
        if isinstance(optimizer, Muon):
            log.info("%s", optimizer)
        if optimizer.defaults.get("fused") and self.trainer.precision == "16-mixed":
            # A fused update undoes the loss scale itself, after clipping has read the scaled gradients.
            raise UserError(
                "optimizer.fused=true does not go with trainer.precision=16-mixed: set it to false"
            )
        total_steps = self.trainer.estimated_stepping_batches
        if total_steps == float("inf") and any(isinstance(each, Timer) for each in self.trainer.callbacks):  # type: ignore[attr-defined]
            total_steps = sys.maxsize  # until the time of a step is measured
        warn_of_warmup(self.scheduler_factory, total_steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": schedule(self.scheduler_factory, optimizer, total_steps),
        }
