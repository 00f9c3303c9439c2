"""The callback that draws and measures the cross-attention at each validation."""

import logging
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from PIL import Image

from nmt import alignment, distributed, plotting
from nmt.analysis.explanation import explain
from nmt.attention.masks import padding_mask
from nmt.config.types import Explainer, Whole
from nmt.data.batching import Batch
from nmt.data.datamodule import TranslationDataModule
from nmt.decoding import DecodingSettings
from nmt.errors import UserError
from nmt.run.aligning import AligningModel
from nmt.run.history import History
from nmt.run.translating import TranslatingModel
from nmt.training.callbacks.trackers import log_image

log = logging.getLogger(__name__)

MOST_FRAMES = 100  # per animation, so that its file does not grow with the length of training


class DrawAlignments(Callback):
    """Draws and measures the cross-attention at each validation, with teacher forcing.

    Logs `val/attention/*` statistics over the whole set; with gold alignments also `val/aer` (row t of the weights
    belongs to the piece that step t emits), and for documents `val/importance/*`. Draws `num_sentences` fixed sentences
    as images `val/alignment/ROW` and as PNG files in `directory`: the mean over heads of the model's alignment layer,
    or of all layers. If there are several layers or heads, `val/heads/ROW` shows each. At the end of training, each
    sentence's heatmaps become an animation. `history.npz` in `directory` keeps the weights, errors and greedy
    translations of all validations, and `index.html` shows them with a slider. A `method` other than attention also
    explains the sentences (`nmt.analysis.explain`), as images `val/METHOD/ROW` and as PNG files.
    """

    # All need a model with attention; val/aer needs gold alignments as well, val/importance/* documents with them
    scores: ClassVar = {
        "val/aer": "min",
        **{f"val/attention/{name}": None for name in alignment.STATISTICS},  # neither is better
        **{f"val/importance/{name}": "max" for name in alignment.Importance._fields},
    }

    def __init__(self, *, num_sentences: Whole, directory: str, method: Explainer) -> None:
        self.num_sentences, self.directory, self.method = num_sentences, Path(directory), method
        self._weights: dict[int, torch.Tensor] = {}

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._weights.clear()

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Batch, *unused: Any
    ) -> None:
        if outputs["weights"] is None:
            return
        weights = outputs["weights"].float().cpu()
        pad_id = pl_module.translator.pad_id
        num_source = padding_mask(batch.src, pad_id).sum(dim=1).tolist()
        num_target = padding_mask(batch.tgt_out, pad_id).sum(dim=1).tolist()
        for row, each, T, S in zip(batch.indices.tolist(), weights, num_target, num_source, strict=True):
            self._weights[row] = each[:T, :S].clone()

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        collected = distributed.merge(self._weights)
        self._weights = {}
        data: TranslationDataModule = trainer.datamodule  # type: ignore[attr-defined]
        model = AligningModel(data.tokenizer, pl_module.translator)
        if collected:
            self._measure(pl_module, model, data, collected)
        if trainer.is_global_zero:
            rows = fixed_sentences(data, sorted(collected) or range(len(data.val_text)), self.num_sentences)
            for row in rows:
                self._draw(trainer, model, data, row)
            if rows and collected:
                self._remember(trainer, model, data, rows, collected, pl_module.decoding.greedy)

    def _measure(
        self,
        pl_module: Any,
        model: AligningModel,
        data: TranslationDataModule,
        collected: dict[int, torch.Tensor],
    ) -> None:
        """Log the measures of the weights of all validation pairs."""
        for name, value in alignment.statistics(list(collected.values())).items():
            pl_module.log(f"val/attention/{name}", value, rank_zero_only=False)
        if "alignment" in data.val_text.column_names:
            score = model.alignment_error(data.val_text, collected, collected)
            pl_module.log("val/aer", score.aer, rank_zero_only=False)
            pl_module.progress["val/aer"] = f"{score.aer:.3f}"
            if importance := model.importance(data.val_text, collected):
                for name, value in importance._asdict().items():
                    pl_module.log(f"val/importance/{name}", value, rank_zero_only=False)

    def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if trainer.is_global_zero:
            pictures = sorted(self.directory.glob("val_[0-9]*_step_*.png"))
            for name, steps in groupby(pictures, key=lambda file: file.name.partition("_step_")[0]):
                frames = list(steps)[-MOST_FRAMES:]
                try:
                    plotting.to_gif(frames, self.directory / f"{name}.gif", seconds_per_frame=0.8)
                except (OSError, ValueError, Image.DecompressionBombError) as error:  # an earlier picture
                    log.warning("%s/%s.gif is not drawn: %s", self.directory, name, error)

    def _draw(self, trainer: L.Trainer, model: AligningModel, data: TranslationDataModule, row: int) -> None:
        sentence = data.val_text[row]
        pair = sentence["src"], sentence["tgt"]
        gold = alignment.parse_talp(sentence["alignment"])[0] if "alignment" in sentence else None
        title, units = f"sentence {row}, step {trainer.global_step}", _units(sentence)
        for _, heads in model.attentions(*([text] for text in pair)):  # [L, K, T, S]; none without attention
            mean = model.between_units(model.choose_head(heads, None, None), *pair, units=units)
            labels = mean.source.labels, mean.target.labels
            self._show(trainer, plotting.picture(mean.sentence(title, gold)), "alignment", row)
            if heads.shape[0] * heads.shape[1] > 1 and alignment.SEPARATOR not in labels[0]:
                grid = [
                    [model.between_units(head, *pair, units=units).weights for head in each] for each in heads
                ]
                self._show(trainer, plotting.head_grid(grid, *labels, title=title, gold=gold), "heads", row)
        if self.method != "attention":
            found = model.between_units(explain(model, *pair, self.method).weights, *pair, units=units)
            named = found.sentence(f"{title}, {self.method.replace('_', ' ')}", gold)
            self._show(trainer, plotting.picture(named), self.method, row)

    def _remember(
        self,
        trainer: L.Trainer,
        model: AligningModel,
        data: TranslationDataModule,
        rows: list[int],
        weights: dict[int, torch.Tensor],
        decoding: DecodingSettings,
    ) -> None:
        """Add this validation to the run's history."""
        examples = [data.val_text[row] for row in rows]
        sources, targets = ([each[side] for each in examples] for side in ("src", "tgt"))
        greedy = TranslatingModel(model.tokenizer, model.translator).translate(sources, decoding)
        between = [
            model.between_units(weights[row].numpy(), each["src"], each["tgt"], units=_units(each))
            .weights[None]
            .astype(np.float16)
            for row, each in zip(rows, examples, strict=True)
        ]
        history = History(
            steps=np.array([trainer.global_step]),
            rows=np.array(rows),
            source=np.array(sources),
            target=np.array(targets),
            translations=np.array([[each.text for each in greedy]]),
            aer=np.array([_errors(model, data, rows, weights)]),
            weights=between,
            gold=[_gold(example) for example in examples],
        )
        try:
            history = history.after(History.load(self.directory))
        except FileNotFoundError:
            pass
        except UserError as error:  # an extra that is damaged does not end a training
            log.warning("%s; it begins anew", error)
        page = plotting.alignment_page(
            history.groups(),
            title=f"Attention at each validation: {model.translator.name}",
            note="The reference is forced; below each title stands the greedy translation.",
        )
        history.save(self.directory, page)

    def _show(self, trainer: L.Trainer, figure: Any, kind: str, row: int) -> None:
        step = trainer.global_step
        prefix = "val" if kind == "alignment" else f"val_{kind}"
        plotting.to_png(figure, self.directory / f"{prefix}_{row:04d}_step_{step:06d}.png")
        log_image(trainer, f"val/{kind}/{row}", plotting.to_array(figure), step)


def _errors(
    model: AligningModel, data: TranslationDataModule, rows: Sequence[int], weights: dict[int, torch.Tensor]
) -> list[float]:
    """The alignment error rate of each row, NaN without gold alignments."""
    if "alignment" not in data.val_text.column_names:
        return [np.nan] * len(rows)
    return [model.alignment_error(data.val_text, weights, [row]).aer for row in rows]


def _units(example: dict[str, str]) -> str:
    """Gold alignments count words."""
    return "words" if "alignment" in example else "auto"


def _gold(example: dict[str, str]) -> np.ndarray:
    """The sure gold links [G, 2] of an example."""
    links = alignment.parse_talp(example["alignment"])[0] if "alignment" in example else ()
    return np.array(sorted(links), dtype=int).reshape(-1, 2)


def fixed_sentences(data: TranslationDataModule, rows: Sequence[int], number: int) -> list[int]:
    """The first rows whose reference has 6 to 16 words, or characters of text without spaces, then other rows if there
    are too few: always the same."""
    lengths = {row: len(alignment.split_units(data.val_text[row]["tgt"])) for row in rows[: 50 * number]}
    return sorted(sorted(lengths, key=lambda row: (not 6 <= lengths[row] <= 16, row))[:number])
