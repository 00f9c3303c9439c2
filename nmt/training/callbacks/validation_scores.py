"""Scores and sample translations at each validation."""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from nmt import distributed, metrics, plotting
from nmt.config.types import Whole
from nmt.data.datamodule import TranslationDataModule
from nmt.decoding import greedy_search
from nmt.errors import UserError
from nmt.run.data import references_of
from nmt.training.callbacks.trackers import log_image, log_table


class ScoreValidation(Callback):
    """BLEU and chrF of greedy translations, with the run's length limits, against the untouched references.

    Logs `val/bleu`, `val/chrf`, and the first `num_samples` translations beside source and reference. Give the test
    set's metrics as `bleu` and `chrf`, so that they choose the best checkpoint; None is the default metric, which
    ignores case if `lowercase` is true. With `macro_f1`, for labels, also logs `val/macro_f1` and the confusion matrix
    as the image `val/confusion`. Raises UserError if the model returns NaN.
    """

    scores: tuple[str, ...] = ("val/bleu", "val/chrf")

    def __init__(
        self,
        *,
        num_samples: Whole,
        bleu: metrics.Bleu | None = None,
        chrf: metrics.Chrf | None = None,
        lowercase: bool = False,
        macro_f1: metrics.MacroF1 | None = None,
    ) -> None:
        self.num_samples = num_samples
        self.scorers: dict[str, Any] = {
            "bleu": metrics.Bleu(tokenize="13a", lowercase=lowercase) if bleu is None else bleu,
            "chrf": metrics.Chrf(lowercase=lowercase) if chrf is None else chrf,
        }
        if macro_f1 is not None:
            self.scorers["macro_f1"] = macro_f1
            self.scores += ("val/macro_f1",)

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        data: TranslationDataModule = trainer.datamodule  # type: ignore[attr-defined]
        loader: Any = trainer.val_dataloaders
        num_batches = trainer.num_val_batches[0]
        translations: dict[int, str] = {}
        for number, batch in enumerate(loader):
            if number == num_batches:
                break
            try:
                hypotheses = greedy_search(
                    pl_module.translator, batch.src.to(pl_module.device), pl_module.decoding.greedy
                )
            except FloatingPointError as error:
                raise UserError(
                    f"validation after step {trainer.global_step}: {error}: lower optimizer.lr or "
                    "trainer.gradient_clip_val, or take a wider trainer.precision"
                ) from error
            texts = data.tokenizer.decode([hypothesis.ids for hypothesis in hypotheses])
            translations.update(zip(batch.indices.tolist(), texts, strict=True))
        translations = distributed.merge(translations)
        rows = sorted(translations)
        references = references_of(data.val_text.select(rows))
        scores = metrics.score_with(
            self.scorers, [translations[row] for row in rows], references, num_bootstrap=0
        )
        for name, result in scores.items():
            pl_module.log(f"val/{name}", result["score"], rank_zero_only=False)
        pl_module.progress["val/bleu"] = f"{scores['bleu']['score']:.1f}"
        if trainer.is_global_zero:
            self._write_samples(trainer, data, rows, translations)
            if "macro_f1" in self.scorers:
                labels, counts = metrics.confusion(
                    [translations[row] for row in rows],
                    references[0],
                    lowercase=self.scorers["macro_f1"].lowercase,
                )
                image = plotting.to_array(plotting.confusion_heatmap(labels, counts))
                log_image(trainer, "val/confusion", image, trainer.global_step)

    def _write_samples(
        self, trainer: L.Trainer, data: TranslationDataModule, rows: list[int], translations: dict[int, str]
    ) -> None:
        table = [
            (str(row), data.val_text[row]["src"], data.val_text[row]["tgt"], translations[row])
            for row in rows[: self.num_samples]
        ]
        header = ("", "source", "reference", "translation")
        log_table(trainer, "val/translations", header, table, trainer.global_step)
