"""Scores and sample translations at each validation."""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from sacrebleu.metrics.base import Metric

from nmt import distributed, kernels, plotting
from nmt.config.types import Whole
from nmt.data.datamodule import TranslationDataModule
from nmt.decoding import greedy_search
from nmt.errors import UserError
from nmt.metrics import Bleu, Chrf, MacroF1, best_of, confusion, score_with
from nmt.run.data import references_of
from nmt.run.unknown_words import dictionary_of, spell_unknown
from nmt.training.callbacks.trackers import log_image, log_table


class ScoreValidation(Callback):
    """Scores of greedy translations, with the run's other settings of decoding, against the untouched references.

    Logs `val/NAME` for each of `metrics` that is not None, and the first `num_samples` translations beside source and
    reference. Give the metrics of the test set, so that they choose the best checkpoint. Without `bleu` or `chrf`, the
    default one is logged, which ignores case if `lowercase` is true. With a MacroF1, for labels, also draws the
    confusion matrix as the image `val/confusion`. Raises UserError if the model returns NaN.
    """

    def __init__(
        self,
        *,
        num_samples: Whole,
        metrics: dict[str, Any] | None = None,
        lowercase: bool = False,
    ) -> None:
        self.num_samples = num_samples
        given = {name: each for name, each in (metrics or {}).items() if each is not None}
        if wrong := [name for name, each in given.items() if not isinstance(each, Metric)]:
            raise UserError(f"callbacks.score.metrics.{wrong[0]} is no metric: give its _target_, or null")
        self.scorers: dict[str, Metric] = {
            "bleu": Bleu(tokenize="13a", lowercase=lowercase),
            "chrf": Chrf(lowercase=lowercase),
        } | given
        self.scores = {f"val/{name}": best_of(each) for name, each in self.scorers.items()}

    @kernels.packed_weights()
    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        data: TranslationDataModule = trainer.datamodule  # type: ignore[attr-defined]
        loader: Any = trainer.val_dataloaders
        num_batches = trainer.num_val_batches[0]
        translations: dict[int, str] = {}
        settings, translator = pl_module.decoding.greedy, pl_module.translator
        dictionary = dictionary_of(settings, translator)
        for number, batch in enumerate(loader):
            if number == num_batches:
                break
            src = batch.src.to(pl_module.device)
            try:
                hypotheses = greedy_search(translator, src, settings, need_weights=dictionary is not None)
            except FloatingPointError as error:
                raise UserError(
                    f"validation after step {trainer.global_step}: {error}: lower optimizer.lr or "
                    "trainer.gradient_clip_val, or take a wider trainer.precision"
                ) from error
            for row, found in zip(batch.indices.tolist(), hypotheses, strict=True):
                spelled = spell_unknown(data.tokenizer, data.val_text[row]["src"], found, dictionary)
                translations[row] = data.tokenizer.decoded_text(found.ids, spelled)
        translations = distributed.merge(translations)
        rows = sorted(translations)
        references = references_of(data.val_text.select(rows))
        outputs = [translations[row] for row in rows]
        scores = score_with(self.scorers, outputs, references, num_bootstrap=0)
        for name, result in scores.items():
            pl_module.log(f"val/{name}", result["score"], rank_zero_only=False)
        pl_module.progress["val/bleu"] = f"{scores['bleu']['score']:.1f}"
        if trainer.is_global_zero:
            self._write_samples(trainer, data, rows, translations)
            for scorer in self.scorers.values():
                if not isinstance(scorer, MacroF1):
                    continue
                labels, counts = confusion(outputs, references[0], lowercase=scorer.lowercase)
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
