"""The class Run: a trained run, loaded from its directory to translate, align and score."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from nmt import alignment, metrics
from nmt.checkpoint import checkpoint_file, files_to_average
from nmt.config.build import build, build_parts, reads_lowercase
from nmt.config.types import SPLITS
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import BEAM, DecodingSettings
from nmt.errors import UserError
from nmt.models.base import Translator
from nmt.models.ensemble import EnsembleTranslator
from nmt.run.aligning import AligningModel
from nmt.run.data import read_whole, references_of, stored_data
from nmt.run.device import pick_device
from nmt.run.limits import check_case
from nmt.run.loading import load_translator
from nmt.run.model import quantise_linear_maps
from nmt.run.paths import load_config
from nmt.run.translating import TranslatingModel
from nmt.run.translation import Translation


class Run(TranslatingModel, AligningModel):
    """A trained run: its directory and configuration, its tokenizer, and its translator in evaluation mode."""

    def __init__(
        self,
        directory: Path,
        config: DictConfig,
        tokenizer: Tokenizer,
        translator: Translator,
        *,
        trusted: Sequence[str] = (),
    ) -> None:
        super().__init__(tokenizer, translator)
        self.directory, self.config, self.trusted = directory, config, trusted

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        checkpoint: str = "best",
        average: int | None = None,
        device: str = "auto",
        int8: bool = False,
        trusted: Sequence[str] = (),
    ) -> "Run":
        """Load a run directory. `checkpoint` is best, last, or a file's path. Raises UserError naming the missing file.

        With `average`, the weights are the mean of the last `average` checkpoints kept for this. With `int8`, large
        linear maps outside the attention's scores multiply in bytes (`nmt.kernels.int8`), only on a CPU. `trusted`
        names modules outside this package; the run may build their classes.
        """
        if average is not None and checkpoint != "best":
            raise UserError(f"average={average} is in place of checkpoint={checkpoint}: give one of the two")
        directory = Path(path)
        config = load_config(directory)
        tokenizer = Tokenizer.load(directory / "tokenizer", lowercase=reads_lowercase(config.get("data")))
        files = (
            [checkpoint_file(directory, checkpoint)]
            if average is None
            else files_to_average(directory, average)
        )
        translator = load_translator(config.model, tokenizer, files, trusted=trusted)
        run = cls(directory, config, tokenizer, translator.to(pick_device(device)), trusted=trusted)
        if int8:
            quantise_linear_maps(run.translator)
        return run

    @classmethod
    def load_ensemble(
        cls,
        paths: Sequence[str | Path],
        **how: Any,
    ) -> "Run":
        """Load several runs with `load(path, **how)` and average their probabilities. They must share a tokenizer."""
        if not paths:
            raise UserError("an ensemble needs a run directory or more")
        runs = [cls.load(path, **how) for path in paths]
        pieces = [
            (
                run.tokenizer.lowercase,
                {file.name: file.read_bytes() for file in (run.directory / "tokenizer").iterdir()},
            )
            for run in runs
        ]
        for run, own in zip(runs, pieces, strict=True):
            if own != pieces[0]:
                raise UserError(
                    f"{run.directory} and {runs[0].directory} have different tokenizers: an ensemble shares "
                    "one (train the others with data.tokenizer.model=FILE)"
                )
        ensemble = EnsembleTranslator([run.translator for run in runs])
        first = runs[0]
        return cls(first.directory, first.config, first.tokenizer, ensemble, trusted=first.trusted)

    def __repr__(self) -> str:
        languages = "" if self.languages is None else f", {' to '.join(self.languages)}"
        size = f"{self.translator.num_parameters:,} parameters"
        return f"Run({str(self.directory)!r}: {self.translator.name}, {size}{languages}, on {self.device})"

    @property
    def name(self) -> str:
        """Names of the directory and of its parent, which tells the choices."""
        return "/".join(self.directory.resolve().parts[-2:])

    @property
    def kind(self) -> str:
        """Its attention, or its model if that has no choice of one, for a person: `bahdanau attention`."""
        choices = self.config.get("choices") or {}
        attention = choices.get("attention")
        if attention is None:
            return str(choices.get("model", self.translator.name))
        return "no attention" if attention == "none" else f"{attention} attention"

    @property
    def title(self) -> str:
        """Its kind and languages, for the head of a page: `bahdanau attention, en to vi`."""
        return ", ".join((self.kind, *([] if self.languages is None else [" to ".join(self.languages)])))

    @property
    def languages(self) -> tuple[str, str] | None:
        """Source and target language of the training data; None if the run does not record them."""
        src, tgt = (OmegaConf.select(self.config, f"data.{key}") for key in ("src_lang", "tgt_lang"))
        return None if None in (src, tgt) else (str(src), str(tgt))

    @cached_property
    def decoding(self) -> DecodingSettings:  # type: ignore[override]
        """The search used for the scores at the end of training."""
        stored = self.config and self.config.get("decoding")
        return build(stored, "decoding") if stored else BEAM

    def score(
        self,
        dataset: Any,
        decoding: DecodingSettings | None = None,
        *,
        scorers: Mapping[str, Any] | None = None,
        num_bootstrap: int = 1000,
        show_progress: bool = False,
        hypotheses: Sequence[str] | None = None,
    ) -> tuple[dict[str, Any], list[Translation]]:
        """Scores of a split's translations by `scorers`, else by the run's metrics; with gold alignments, also the AER.

        If `hypotheses` are given, nothing is searched, and `log_prob` scores them by the model (nats; per_piece is the
        mean over pieces, ends of sentence included). `references` is the digest of sources and references: scores with
        the same digest compare. Raises UserError for a scorer that counts case if the tokenizer lower-cases text.
        """
        if scorers is None:
            scorers = build_parts(self.config.metrics, "metrics", trusted=self.trusted)
        check_case(scorers, lowercase=self.tokenizer.lowercase)
        scores: dict[str, Any] = {}
        sources = list(dataset["src"])
        if hypotheses is None:
            translations = self.translate(sources, decoding, need_weights=False, show_progress=show_progress)
        else:
            translations, scores["log_prob"] = self.force(sources, hypotheses)
        scores["num_sentences"] = len(sources)
        if "tgt" not in dataset.column_names:
            return scores, translations
        references = references_of(dataset)
        texts = [each.text for each in translations]
        scores = metrics.score_with(scorers, texts, references, num_bootstrap=num_bootstrap) | scores
        scores["references"] = metrics.digest(sources, references)
        if self.translator.has_attention:
            scores |= self._score_attention(dataset, sources, references[0], labels="macro_f1" in scores)
        return scores, translations

    def _score_attention(
        self, dataset: Any, sources: list[str], references: list[str], *, labels: bool
    ) -> dict[str, dict[str, Any]]:
        """Statistics of the attention over forced references, agreement of heads and AER; with `labels`, the weightiest
        words.
        """
        chosen, agreements = {}, []
        for row, heads in self.attentions(sources, references):
            chosen[row] = self.choose_head(heads, None, None)
            if heads.shape[1] > 1:
                agreements.append(alignment.agreement(heads).mean(axis=0))
        if not chosen:  # the model can read none of the pairs
            return {}
        scores: dict[str, dict[str, Any]] = {"attention": alignment.statistics(chosen.values())}
        if agreements:
            scores["attention"]["agreement"] = float(np.concatenate(agreements).mean())
        if labels:
            read = [self.between_units(each, sources[row], references[row]) for row, each in chosen.items()]
            scores["weighed_words"] = alignment.weighed_words(
                (each.weights for each in read),
                (each.source.labels for each in read),
                (references[row] for row in chosen),
            )
        if "alignment" in dataset.column_names:
            result = self.alignment_error(dataset, chosen, range(len(sources)))
            scores["aer"] = {"score": result.aer, "precision": result.precision, "recall": result.recall}
            if importance := self.importance(dataset, chosen):
                scores["importance"] = importance._asdict()
        return scores

    def split(self, name: str, data: DictConfig | None = None, *, stored: bool = True) -> Any:
        """A split of `data`, read whole, or else of the run's data. Raises UserError if there is none.

        stored: True if `data` comes from a run.
        """
        if name not in SPLITS and not name.startswith("test"):
            raise UserError(
                f"split={name}: choose one of {', '.join(SPLITS)}, or a test set, whose name begins so"
            )
        data = stored_data(self.config.data) if data is None else data
        splits = read_whole(data, [name], trusted=self.trusted, stored=stored)
        if name not in splits:
            raise UserError(f"split={name}: the data have no such split")
        return splits[name]


def open_run(paths: Any, **how: Any) -> Run:
    """The run of a directory, or the ensemble of a list of directories; `how` goes to `Run.load`."""
    return Run.load(paths, **how) if isinstance(paths, str | Path) else Run.load_ensemble(list(paths), **how)
