"""Pictures and statistics of the cross-attention at each validation."""

from pathlib import Path
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from nmt import alignment, plotting, ranks
from nmt.attention.masks import padding_mask
from nmt.data.batching import Batch, collate
from nmt.data.datamodule import TranslationDataModule
from nmt.errors import UserError
from nmt.settings import Whole
from nmt.training.callbacks.writers import tensorboard_writers

MOST_FRAMES = 100  # of an animation: memory and checkpoints must not grow with the length of training


class DrawAlignments(Callback):
    """Cross-attention at each validation, read while the references are forced.

    Logs `val/attention/*` statistics over the whole set, `val/aer` where the data have gold alignments (the
    weights read as emitted: row t belongs to the piece that step t emits), and a heatmap of each of
    `num_sentences` fixed sentences, as image `val/alignment/ROW` and as a PNG in `directory`. `layer` and `head`
    (from 0) choose whose weights the heatmaps show: None is the model's own layer of alignment, else the mean over
    layers, and the mean over heads. With `grid`, every layer and head is drawn too, where there are several, as
    `val/heads/ROW`. When training ends, an animation of each sentence's heatmaps is left beside them, of at most
    `MOST_FRAMES` over the whole of training. `labels` are whole words or pieces. Does nothing for a model without
    attention.
    """

    # The first where the data have gold alignments, all of them where the model has attention.
    scores = ("val/aer", *(f"val/attention/{name}" for name in alignment.STATISTICS))

    def __init__(
        self,
        *,
        num_sentences: Whole,
        labels: Literal["words", "pieces"],
        layer: Whole | None,
        head: Whole | None,
        grid: bool,
        directory: str,
    ) -> None:
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
        training = translator.training
        translator.eval()  # which draws nothing, so that training draws what it would draw without
        with torch.no_grad():
            cross = translator.attentions(pieces, pieces != translator.pad_id, pieces).cross
        translator.train(training)
        for name, chosen, number in (
            ("layer", self.layer, cross.size(1)),
            ("head", self.head, cross.size(2)),
        ):
            if chosen is not None and not 0 <= chosen < number:
                raise UserError(
                    f"callbacks.alignments.{name}={chosen}: the model has {number}, counted from 0"
                )

    def state_dict(self) -> dict[str, Any]:
        return {"history": self._history, "labels": self.labels}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict.get("labels", self.labels) == self.labels:  # else its matrices are of others
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
        collected = ranks.united(self._weights)
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
                figures = (
                    plotting.heatmap(weights, source, target, title=f"sentence {row}, step {step}", gold=gold)
                    for step, weights in history
                )
                plotting.to_gif(figures, self.directory / f"val_{row:04d}.gif", seconds_per_frame=0.8)

    def _draw(self, trainer: L.Trainer, pl_module: Any, data: TranslationDataModule, row: int) -> None:
        heads = _attentions(pl_module, data, row)  # [L, K, T, S]
        layer = pl_module.translator.alignment_layer if self.layer is None else self.layer
        chosen = heads.mean(dim=0) if layer is None else heads[layer]
        chosen = chosen.mean(dim=0) if self.head is None else chosen[self.head]
        shown = self._between_labels(data, row, chosen)
        history = self._history.setdefault(row, [])
        history.append((trainer.global_step, shown))
        if len(history) > MOST_FRAMES:
            del history[most_crowded([step for step, _ in history])]
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
        for writer in tensorboard_writers(trainer):
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


def most_crowded(steps: list[int]) -> int:
    """The index whose neighbours are nearest to each other; of several the first, and never the first or the last."""
    return min(range(1, len(steps) - 1), key=lambda index: steps[index + 1] - steps[index - 1])


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
