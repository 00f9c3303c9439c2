"""When to translate, score, draw and save during training."""

import logging
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, TQDMProgressBar

from nmt import alignment, metrics, plotting
from nmt.data.batching import Batch, collate
from nmt.data.datamodule import TranslationDataModule
from nmt.decoding import greedy_search
from nmt.errors import UserError
from nmt.masks import padding_mask

log = logging.getLogger(__name__)


class ScoreValidation(Callback):
    """BLEU and chrF of greedy translations, detokenised, against the untouched references.

    Logs `val/bleu`, `val/chrf`, and the first `num_samples` translations beside source and reference.
    """

    def __init__(self, *, num_samples: int) -> None:
        self.num_samples = num_samples

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        data: TranslationDataModule = trainer.datamodule  # type: ignore[attr-defined]
        loader: Any = trainer.val_dataloaders
        num_batches = trainer.num_val_batches[0]
        translations: dict[int, str] = {}
        for number, batch in enumerate(loader):
            if number == num_batches:
                break
            hypotheses = greedy_search(pl_module.translator, batch.src.to(pl_module.device))
            texts = data.tokenizer.decode([hypothesis.ids for hypothesis in hypotheses])
            translations.update(zip(batch.indices.tolist(), texts, strict=True))
        translations = _from_all_ranks(trainer, translations)
        rows = sorted(translations)
        references = [data.val_text[row]["tgt"] for row in rows]
        scores = metrics.score(
            [translations[row] for row in rows], references, names=("bleu", "chrf"), num_bootstrap=0
        )
        for name, result in scores.items():
            pl_module.log(f"val/{name}", result["score"], rank_zero_only=False)
        pl_module.progress["val/bleu"] = f"{scores['bleu']['score']:.1f}"
        if trainer.is_global_zero:
            self._write_samples(trainer, data, rows, translations)

    def _write_samples(
        self, trainer: L.Trainer, data: TranslationDataModule, rows: list[int], translations: dict[int, str]
    ) -> None:
        table = ["| | source | reference | translation |", "|---|---|---|---|"]
        for row in rows[: self.num_samples]:
            cells = (data.val_text[row]["src"], data.val_text[row]["tgt"], translations[row])
            table.append(f"| {row} | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        for writer in _writers(trainer):
            writer.add_text("val/translations", "\n".join(table), trainer.global_step)


class DrawAlignments(Callback):
    """Cross-attention at each validation, read while the references are forced.

    Logs `val/attention/*` statistics over the whole set, `val/aer` where the data have gold alignments (the
    weights read as emitted: row t belongs to the piece that step t emits), and a heatmap of each of
    `num_sentences` fixed sentences, as image `val/alignment/ROW` and as a PNG in `directory`. `layer` and `head`
    (from 0) choose whose weights the heatmaps show: None is the model's own layer of alignment, else the mean over
    layers, and the mean over heads. With `grid`, every layer and head is drawn too, where there are several, as
    `val/heads/ROW`. When training ends, an animation of each sentence's heatmaps is left beside them. `labels` are
    whole words or pieces. Does nothing for a model without attention.
    """

    def __init__(
        self,
        *,
        num_sentences: int,
        labels: str,
        layer: int | None,
        head: int | None,
        grid: bool,
        directory: str,
    ) -> None:
        if labels not in ("words", "pieces"):
            raise ValueError(f"callbacks.alignments.labels is words or pieces, got {labels}")
        self.num_sentences, self.labels, self.directory = num_sentences, labels, Path(directory)
        self.layer, self.head, self.grid = layer, head, grid
        self._weights: dict[int, torch.Tensor] = {}
        self._history: dict[
            int, list[tuple[int, torch.Tensor]]
        ] = {}  # (step, weights shown) of each sentence

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        """Raises UserError where the model has no such layer or head."""
        translator = pl_module.translator
        if (self.layer, self.head) == (None, None) or not translator.has_attention:
            return
        pieces = torch.full((1, 2), translator.eos_id, device=pl_module.device)
        with torch.no_grad():
            cross = translator.attentions(pieces, pieces != translator.pad_id, pieces).cross
        for name, chosen, number in (
            ("layer", self.layer, cross.size(1)),
            ("head", self.head, cross.size(2)),
        ):
            if chosen is not None and not 0 <= chosen < number:
                raise UserError(
                    f"callbacks.alignments.{name}={chosen}: the model has {number}, counted from 0"
                )

    def state_dict(self) -> dict[str, Any]:
        return {"history": self._history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._history = state_dict["history"]

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._weights.clear()

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if outputs["weights"] is None:
            return
        weights = outputs["weights"].float().cpu()
        pad_id = pl_module.translator.pad_id
        num_source = padding_mask(batch.src, pad_id).sum(dim=1).tolist()
        num_target = padding_mask(batch.tgt_out, pad_id).sum(dim=1).tolist()
        for row, each, rows, columns in zip(
            batch.indices.tolist(), weights, num_target, num_source, strict=True
        ):
            self._weights[row] = each[:rows, :columns].clone()

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        collected = _from_all_ranks(trainer, self._weights)
        self._weights = {}
        if not collected:
            return
        data: TranslationDataModule = trainer.datamodule  # type: ignore[attr-defined]
        for name, value in alignment.statistics(list(collected.values())).items():
            pl_module.log(f"val/attention/{name}", value, rank_zero_only=False)
        if "alignment" in data.val_text.column_names:
            score = alignment_error(data, collected)
            pl_module.log("val/aer", score.aer, rank_zero_only=False)
            pl_module.progress["val/aer"] = f"{score.aer:.3f}"
        if trainer.is_global_zero:
            for row in fixed_sentences(data, sorted(collected), self.num_sentences):
                self._draw(trainer, pl_module, data, row)

    def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        data: TranslationDataModule = trainer.datamodule  # type: ignore[attr-defined]
        if trainer.is_global_zero:
            for row, history in self._history.items():
                source, target, gold = self._labels(data, row)
                figures = [
                    plotting.heatmap(weights, source, target, title=f"sentence {row}, step {step}", gold=gold)
                    for step, weights in history
                ]
                plotting.to_gif(figures, self.directory / f"val_{row:04d}.gif", seconds_per_frame=0.8)

    def _draw(self, trainer: L.Trainer, pl_module: Any, data: TranslationDataModule, row: int) -> None:
        heads = _attentions(pl_module, data, row)  # [L, K, T, S]
        layer = pl_module.translator.alignment_layer if self.layer is None else self.layer
        chosen = heads.mean(dim=0) if layer is None else heads[layer]
        chosen = chosen.mean(dim=0) if self.head is None else chosen[self.head]
        shown = self._between_labels(data, row, chosen)
        self._history.setdefault(row, []).append((trainer.global_step, shown))
        source, target, gold = self._labels(data, row)
        title = f"sentence {row}, step {trainer.global_step}"
        figure = plotting.heatmap(shown, source, target, title=title, gold=gold)
        self._show(trainer, figure, "alignment", row)
        if self.grid and heads.size(0) * heads.size(1) > 1:
            grid = torch.stack(
                [torch.stack([self._between_labels(data, row, each) for each in layer]) for layer in heads]
            )
            self._show(
                trainer, plotting.head_grid(grid, source, target, title=title, gold=gold), "heads", row
            )

    def _show(self, trainer: L.Trainer, figure: Any, kind: str, row: int) -> None:
        step = trainer.global_step
        prefix = "val" if kind == "alignment" else f"val_{kind}"
        plotting.to_png(figure, self.directory / f"{prefix}_{row:04d}_step_{step:06d}.png")
        image = plotting.to_array(figure)
        for writer in _writers(trainer):
            writer.add_image(f"val/{kind}/{row}", image, step, dataformats="HWC")

    def _between_labels(self, data: TranslationDataModule, row: int, weights: torch.Tensor) -> torch.Tensor:
        """Weights [T, S] between pieces as weights between what the labels name."""
        if self.labels == "pieces":
            return weights
        return torch.from_numpy(word_weights(data, row, weights)).float()

    def _labels(self, data: TranslationDataModule, row: int) -> tuple[list[str], list[str], Any]:
        """Source and target labels of a validation pair, and its gold links where labels are words."""
        if self.labels == "pieces":
            source = data.tokenizer.source_pieces(data.val[row]["src_ids"])
            return source, data.tokenizer.target_pieces(data.val[row]["tgt_ids"]), None
        sentence = data.val_text[row]
        gold = alignment.parse_talp(sentence["alignment"])[0] if "alignment" in sentence else None
        return sentence["src"].split(), sentence["tgt"].split(), gold


def _attentions(pl_module: Any, data: TranslationDataModule, row: int) -> torch.Tensor:
    """The weights [L, K, T, S] of every layer and head for a validation pair, on the CPU."""
    batch = collate([data.val[row]], pad_id=data.tokenizer.pad_id, bos_id=data.tokenizer.bos_id)
    src, tgt_in = batch.src.to(pl_module.device), batch.tgt_in.to(pl_module.device)
    with torch.no_grad():
        cross = pl_module.translator.attentions(src, padding_mask(src, data.tokenizer.pad_id), tgt_in).cross
    return cross[0].float().cpu()


def word_weights(data: TranslationDataModule, row: int, weights: torch.Tensor) -> Any:
    """The weights [T, S] between pieces of a validation pair as weights between its whitespace words."""
    sentence = data.val_text[row]
    _, source_words = data.tokenizer.align_source(sentence["src"])
    _, target_words = data.tokenizer.align_target(sentence["tgt"])
    return alignment.words_from_pieces(
        weights,
        target_words,
        source_words,
        num_tgt_words=len(sentence["tgt"].split()),
        num_src_words=len(sentence["src"].split()),
    )


def alignment_error(data: TranslationDataModule, weights: dict[int, torch.Tensor]) -> Any:
    """AER of the most attended source word of each target word against the gold of the validation set."""
    links, golds = [], []
    for row, each in weights.items():
        links.append(alignment.links_from_weights(word_weights(data, row, each)))
        golds.append(alignment.parse_talp(data.val_text[row]["alignment"]))
    sures, possibles = zip(*golds, strict=True)
    return alignment.score_alignments(links, sures, possibles)


def fixed_sentences(data: TranslationDataModule, rows: list[int], number: int) -> list[int]:
    """The first rows whose reference has 6 to 16 words (any row where too few have): the same each time."""
    lengths = {row: len(data.val_text[row]["tgt"].split()) for row in rows[: 50 * number]}
    return sorted(sorted(lengths, key=lambda row: (not 6 <= lengths[row] <= 16, row))[:number])


class SaveOnInterrupt(Callback):
    """Ctrl-C ends the run after the batch at hand and saves `last.ckpt`; a second one ends it at once.

    The signal only leaves a note, which is read between batches: an interrupt in the middle of a step could be
    lost inside a library, and would save weights from the middle of an update.
    """

    def __init__(self) -> None:
        self._interrupted = False
        self._previous: Any = None

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)

    def teardown(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def _note(self, signal_number: int, frame: Any) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *unused: Any) -> None:
        self._stop_if_interrupted()

    def on_validation_batch_end(self, trainer: L.Trainer, pl_module: Any, *unused: Any) -> None:
        self._stop_if_interrupted()

    def _stop_if_interrupted(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        if not isinstance(exception, KeyboardInterrupt):
            return
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.dirpath:
                trainer.save_checkpoint(os.path.join(callback.dirpath, "last.ckpt"))
                log.warning("interrupted at step %d: saved last.ckpt", trainer.global_step)
                return


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place, flushes it, then renames: never half a file under its name."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


class ProgressBar(TQDMProgressBar):
    """The epoch's bar with loss, tokens/s, the last validation scores and the time left of the whole run."""

    def __init__(self, refresh_rate: int = 10) -> None:
        super().__init__(refresh_rate=refresh_rate)
        self._started = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        super().on_train_start(trainer, pl_module)
        self._started = time.perf_counter()
        self._first_step = trainer.global_step

    def get_metrics(self, trainer: L.Trainer, pl_module: Any) -> dict[str, Any]:
        shown = dict(pl_module.progress)
        done = trainer.global_step - self._first_step
        if self._started and done and trainer.estimated_stepping_batches != float("inf"):
            rate = (time.perf_counter() - self._started) / done
            left = max(0.0, rate * (trainer.estimated_stepping_batches - trainer.global_step))
            shown["left"] = str(timedelta(seconds=round(left)))
        return shown


def _from_all_ranks(trainer: L.Trainer, part: dict[int, Any]) -> dict[int, Any]:
    """The union of every rank's dictionary by example, in order, on every rank."""
    if trainer.world_size > 1:
        parts: list[Any] = [None] * trainer.world_size
        torch.distributed.all_gather_object(parts, part)
        part = {row: value for each in parts for row, value in each.items()}
    return dict(sorted(part.items()))


def _writers(trainer: L.Trainer) -> list[Any]:
    """The TensorBoard writers among the loggers."""
    loggers: list[Any] = list(trainer.loggers)
    return [logger.experiment for logger in loggers if hasattr(logger.experiment, "add_image")]
