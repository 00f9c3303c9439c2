"""A run directory as an object: built by training, then all that is needed to translate, align and score."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from nmt import alignment, metrics
from nmt.attention.masks import padding_mask
from nmt.data.batching import collate
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import BEAM, DecodingSettings, Hypothesis, PrefixError, search
from nmt.errors import UserError
from nmt.models.base import Translator
from nmt.models.ensemble import EnsembleTranslator
from nmt.run.building import build_translator, quantise, reads_lowercase
from nmt.run.checks import check_case
from nmt.run.data import read_whole, stored_data
from nmt.run.device import pick_device
from nmt.run.files import checkpoint_file, files_to_average, load_config
from nmt.run.translation import Translation
from nmt.run.weights import load_average, load_weights
from nmt.settings import SPLITS

log = logging.getLogger(__name__)

MOST_PIECES = 512  # of a source line that is translated as one: time and memory grow with the square


class Run:
    """A trained run: configuration, tokenizer and translator, in evaluation mode."""

    def __init__(
        self,
        directory: Path,
        config: DictConfig,
        tokenizer: Tokenizer,
        translator: Translator,
        *,
        trusted: Sequence[str] = (),
    ) -> None:
        self.directory, self.config, self.trusted = directory, config, trusted
        self.tokenizer, self.translator = tokenizer, translator.eval()

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
        """Load a run directory; `checkpoint` is best, last, or a file's path. Raises UserError naming what lacks.

        With `average`, the weights are the mean of those of the last so many checkpoints that were kept for it. With
        `int8` the linear maps outside the attention's scores multiply in bytes (`nmt.kernels.int8`), on a CPU only.
        `trusted` names modules outside this package whose classes the run may build.
        """
        if average is not None and checkpoint != "best":
            raise UserError(f"average={average} is in place of checkpoint={checkpoint}: give one of the two")
        directory = Path(path)
        if not directory.is_dir():
            raise UserError(f"{directory}: no such run directory")
        config = load_config(directory)
        tokenizer = Tokenizer.load(directory / "tokenizer", lowercase=reads_lowercase(config.get("data")))
        translator = build_translator(config.model, tokenizer, trusted=trusted)
        if average is None:
            load_weights(translator, checkpoint_file(directory, checkpoint))
        else:
            load_average(translator, files_to_average(directory, average))
        run = cls(directory, config, tokenizer, translator.to(pick_device(device)), trusted=trusted)
        if int8:
            quantise(run.translator)
        return run

    @classmethod
    def load_ensemble(
        cls,
        paths: Sequence[str | Path],
        **how: Any,
    ) -> "Run":
        """Several runs as one, whose probabilities are averaged; they must share their tokenizer's files.

        Each is loaded as `load` is told by `how`.
        """
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

    @property
    def device(self) -> torch.device:
        return next(self.translator.parameters()).device

    @property
    def languages(self) -> tuple[str, str] | None:
        """The languages that the run was trained on, source and target; None where it does not say."""
        src, tgt = (OmegaConf.select(self.config, f"data.{key}") for key in ("src_lang", "tgt_lang"))
        return None if None in (src, tgt) else (str(src), str(tgt))

    @torch.inference_mode()
    def translate(
        self,
        lines: Iterable[str],
        decoding: DecodingSettings = BEAM,
        *,
        num_best: int = 1,
        prefixes: Sequence[str] | None = None,
        max_tokens: int = 4096,
        first_line: int = 1,
        show_progress: bool = False,
    ) -> list[Translation]:
        """Translate each line, in order: one Translation a line, an empty one for an empty line.

        `num_best` > 1 puts the other hypotheses in `.others`, best first (or in the order drawn). `prefixes` are
        what each translation must begin with. A line of more than `MOST_PIECES` pieces is cut at words into parts that
        are translated by themselves and joined, with a warning that counts lines from `first_line`. A line that is
        empty or was cut has no others. Raises UserError for settings that do not fit the model.
        """
        lines = list(lines)
        ids = self.tokenizer.encode_source(lines)
        if prefixes is not None:
            if len(prefixes) != len(lines):
                raise UserError(f"{len(lines)} lines to translate but {len(prefixes)} prefixes")
            for number, (line, own, prefix) in enumerate(zip(lines, ids, prefixes, strict=True), first_line):
                if prefix.strip() and _is_empty(line, own):
                    raise UserError(
                        f"line {number} is empty, and so is its translation, which cannot begin with {prefix!r}"
                    )
        cut = {
            row: self._parts(lines[row])
            for row, own in enumerate(ids)
            if len(own) > self._most_pieces and not _is_empty(lines[row], own)
        }
        settings: dict[str, Any] = {
            "num_best": num_best,
            "max_tokens": max_tokens,
            "show_progress": show_progress,
        }
        numbers = range(first_line, first_line + len(lines))
        if cut:
            return self._translate_parts(lines, cut, prefixes, numbers, decoding, **settings)
        return self._translate_whole(lines, ids, prefixes, numbers, decoding, **settings)

    def _translate_whole(
        self,
        lines: Sequence[str],
        ids: list[list[int]],
        prefixes: Sequence[str] | None,
        numbers: Sequence[int],
        decoding: DecodingSettings,
        *,
        num_best: int,
        max_tokens: int,
        show_progress: bool,
    ) -> list[Translation]:
        """Translations of lines none of which need be cut; an error names a line by its number in `numbers`."""
        begun = None if prefixes is None else [row[:-1] for row in self.tokenizer.encode_target(prefixes)]
        results = [self._empty(line) for line in lines]
        batches = _batches_by_length(
            {row: len(own) for row, own in enumerate(ids) if not _is_empty(lines[row], own)}, max_tokens
        )
        with tqdm(total=len(lines), desc="translate", unit="lines", disable=not show_progress) as bar:
            for rows in batches:
                try:
                    found = search(
                        self.translator,
                        self._pad([ids[row] for row in rows]),
                        decoding,
                        num_best=num_best,
                        prefixes=None if begun is None else self._pad([begun[row] for row in rows]),
                        need_weights=self.translator.has_attention,
                    )
                except PrefixError as error:
                    raise UserError(
                        f"the prefix of line {numbers[rows[error.row]]} {error.reason}"
                    ) from error
                except ValueError as error:
                    raise UserError(str(error)) from error
                for row, hypotheses in zip(rows, found, strict=True):
                    best, *others = (self._translation(lines[row], each) for each in hypotheses)
                    results[row] = Translation(**{**vars(best), "others": tuple(others)})
                bar.update(len(rows))
        return results

    def _empty(self, line: str) -> Translation:
        """That of a line of which nothing is to be translated."""
        words = line.split()
        weights = np.zeros((0, len(words))) if self.translator.has_attention else None
        return Translation(line, "", source_words=words, weights=weights)

    @property
    def _most_pieces(self) -> int:
        return min(MOST_PIECES, self.translator.max_length or MOST_PIECES)

    def _parts(self, line: str) -> list[str]:
        """A line cut in halves, at words where it has any, until no part has more than `_most_pieces`."""
        [own] = self.tokenizer.encode_source([line])
        if len(own) <= self._most_pieces or len(line) == 1:
            return [line]
        words = line.split()
        if len(words) > 1:
            halves = [" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]
        else:
            [word] = words
            halves = [word[: len(word) // 2], word[len(word) // 2 :]]
        return [part for half in halves for part in self._parts(half)]

    def _translate_parts(
        self,
        lines: list[str],
        cut: dict[int, list[str]],
        prefixes: Sequence[str] | None,
        numbers: Sequence[int],
        decoding: DecodingSettings,
        **settings: Any,
    ) -> list[Translation]:
        """Translations of lines of which some are `cut` into parts; a prefix is that of the first part."""
        parts: list[str] = []
        begun: list[str] = []
        numbers_of_parts: list[int] = []
        for row, line in enumerate(lines):
            own = cut.get(row, [line])
            parts += own
            numbers_of_parts += [numbers[row]] * len(own)
            begun += [prefixes[row] if prefixes is not None else "", *[""] * (len(own) - 1)]
        log.warning(
            "%d of %d lines have more than %d pieces: each is translated in parts (the first is line %d)",
            *(len(cut), len(lines), self._most_pieces, numbers[min(cut)]),
        )
        ids = self.tokenizer.encode_source(parts)
        found = iter(
            self._translate_whole(
                parts, ids, None if prefixes is None else begun, numbers_of_parts, decoding, **settings
            )
        )
        joined = []
        for row, line in enumerate(lines):
            own_parts = list(islice(found, len(cut.get(row, [line]))))
            joined.append(own_parts[0] if len(own_parts) == 1 else Translation.join(line, own_parts))
        return joined

    @torch.inference_mode()
    def attentions(
        self, sources: Sequence[str], targets: Sequence[str], *, max_tokens: int = 4096
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Cross-attention between the pieces of given pairs, ends of sentence included, as it comes.

        Yields (number of the pair, weights [L, K, T, S] of each layer and head); the targets are forced.
        Yields nothing where the model has no attention. A pair that is longer than the model can read is left out,
        with a warning.
        """
        if len(sources) != len(targets):
            raise UserError(f"{len(sources)} source lines but {len(targets)} target lines")
        src_ids, tgt_ids = self.tokenizer.encode_source(sources), self.tokenizer.encode_target(targets)
        lengths = {row: max(len(src_ids[row]), len(tgt_ids[row])) for row in range(len(sources))}
        longest = self.translator.max_length or max(lengths.values(), default=0)
        if too_long := [row for row, length in lengths.items() if length > longest]:
            log.warning(
                "%d of %d pairs have more than the %d pieces that the model can read, and no weights (the first is %d)",
                *(len(too_long), len(lengths), longest, too_long[0] + 1),
            )
        fitting = {row: length for row, length in lengths.items() if length <= longest}
        for rows in _batches_by_length(fitting, max_tokens):
            examples = [{"index": row, "src_ids": src_ids[row], "tgt_ids": tgt_ids[row]} for row in rows]
            batch = collate(examples, pad_id=self.tokenizer.pad_id, bos_id=self.tokenizer.bos_id)
            src, tgt_in = batch.src.to(self.device), batch.tgt_in.to(self.device)
            cross = self.translator.attentions(src, padding_mask(src, self.tokenizer.pad_id), tgt_in).cross
            if cross is None:
                return
            for row, weights in zip(rows, cross.float().cpu().numpy(), strict=True):
                yield row, weights[..., : len(tgt_ids[row]), : len(src_ids[row])]

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        layer: int | None = None,
        head: int | None = None,
        reading: Literal["emitted", "fed"] = "emitted",
    ) -> list[np.ndarray | None]:
        """Cross-attention between the words of given pairs: [target words, source words] each.

        The targets are forced. `layer` and `head` (from 0) choose one where there are several: None is the
        model's own layer of alignment, else the mean over layers, and the mean over heads. `reading` says which
        row of the weights belongs to a piece (`alignment.shift_reading`): that of the step that emits it, or of
        the step that is fed it. None for each pair where the model has no attention. Raises UserError where
        there is no such layer or head.
        """
        results: list[np.ndarray | None] = [None] * len(sources)
        for row, weights in self.attentions(sources, targets):
            chosen = self.choose_head(weights, layer, head)
            results[row] = self.between_words(chosen, sources[row], targets[row], reading)
        return results

    def choose_head(self, weights: np.ndarray, layer: int | None, head: int | None) -> np.ndarray:
        """Weights [T, S] out of [L, K, T, S]; see `align`."""
        layer = self.translator.alignment_layer if layer is None else layer
        for name, chosen, number in (("layer", layer, len(weights)), ("head", head, weights.shape[1])):
            if chosen is not None and not (type(chosen) is int and 0 <= chosen < number):
                raise UserError(f"{name}={chosen}: {self.directory} has {number}, counted from 0")
        of_layer = weights.mean(axis=0) if layer is None else weights[layer]
        return of_layer.mean(axis=0) if head is None else of_layer[head]

    def between_words(
        self, weights: np.ndarray, source: str, target: str, reading: Literal["emitted", "fed"] = "emitted"
    ) -> np.ndarray:
        """Weights [T, S] between the pieces of a pair, ends of sentence included, as weights between its words."""
        return alignment.words_from_pieces(
            alignment.shift_reading(weights, reading),
            self.tokenizer.align_target(target)[1][:-1],
            self.tokenizer.align_source(source)[1],
            num_tgt_words=len(target.split()),
            num_src_words=len(source.split()),
        )

    def score(
        self,
        dataset: Any,
        decoding: DecodingSettings = BEAM,
        *,
        scorers: Mapping[str, Any] | None = None,
        num_bootstrap: int = 1000,
        show_progress: bool = False,
    ) -> tuple[dict[str, Any], list[Translation]]:
        """Scores of a split's translations by `scorers`, else BLEU, chrF and TER; AER where gold is there.

        Raises UserError for a scorer that counts case where the tokenizer lower-cases text. `references` is the digest
        of what was translated and scored against: equal where scores compare.
        """
        check_case(scorers or {}, lowercase=self.tokenizer.lowercase)
        sources, references = list(dataset["src"]), list(dataset["tgt"])
        translations = self.translate(sources, decoding, show_progress=show_progress)
        hypotheses = [each.text for each in translations]
        scores: dict[str, Any] = (
            metrics.score(
                hypotheses, references, num_bootstrap=num_bootstrap, lowercase=self.tokenizer.lowercase
            )
            if scorers is None
            else metrics.score_with(scorers, hypotheses, references, num_bootstrap=num_bootstrap)
        )
        scores["num_sentences"] = len(sources)
        scores["references"] = metrics.digest(sources, references)
        if self.translator.has_attention:
            scores |= self._score_attention(dataset, sources, references)
        return scores, translations

    def _score_attention(
        self, dataset: Any, sources: list[str], references: list[str]
    ) -> dict[str, dict[str, float]]:
        """Statistics of the attention over forced references, and its alignment error where gold is there.

        Agreement, where there are several heads, is their mean over layers and target pieces.
        """
        chosen, agreements = {}, []
        for row, heads in self.attentions(sources, references):
            chosen[row] = self.choose_head(heads, None, None)
            if heads.shape[1] > 1:
                agreements.append(alignment.agreement(heads).mean(axis=0))
        if not chosen:  # the model can read none of the pairs
            return {}
        scores: dict[str, dict[str, float]] = {"attention": alignment.statistics(chosen.values())}
        if agreements:
            scores["attention"]["agreement"] = float(np.concatenate(agreements).mean())
        if "alignment" in dataset.column_names:
            sures, possibles = zip(*map(alignment.parse_talp, dataset["alignment"]), strict=True)
            links: list[alignment.Links] = [set() for _ in sources]  # none where the model cannot read a pair
            for row, weights in chosen.items():
                links[row] = alignment.links_from_weights(
                    self.between_words(weights, sources[row], references[row])
                )
            result = alignment.score_alignments(links, sures, possibles)
            scores["aer"] = {"score": result.aer, "precision": result.precision, "recall": result.recall}
        return scores

    def split(self, name: str, data: DictConfig | None = None) -> Any:
        """A split of `data`, else of the data the run was trained on, read whole though training may have streamed it.

        Raises UserError where there is none.
        """
        if name not in SPLITS:
            raise UserError(f"split={name}: choose one of {', '.join(SPLITS)}")
        splits = read_whole(
            stored_data(self.config.data) if data is None else data, [name], trusted=self.trusted
        )
        if name not in splits:
            raise UserError(f"split={name}: the data have no such split")
        return splits[name]

    def _pad(self, rows: list[list[int]]) -> Tensor:
        tensors = [torch.tensor(row, dtype=torch.long) for row in rows]  # an empty one has no type of its own
        return pad_sequence(tensors, batch_first=True, padding_value=self.tokenizer.pad_id).to(self.device)

    def _translation(self, source: str, hypothesis: Hypothesis) -> Translation:
        [text] = self.tokenizer.decode([hypothesis.ids])
        source_words, target_words = source.split(), text.split()
        weights = None
        if hypothesis.weights is not None:
            groups = self.tokenizer.target_words(hypothesis.ids)
            weights = alignment.words_from_pieces(
                hypothesis.weights.float().numpy()[: len(groups)],  # without the row that emits EOS
                groups,
                self.tokenizer.align_source(source)[1],
                num_tgt_words=len(target_words),
                num_src_words=len(source_words),
            )
        line = " ".join(text.splitlines())  # one line in, one line out
        return Translation(
            source, line, hypothesis.score, hypothesis.log_prob, source_words, target_words, weights
        )


def open_run(paths: Any, **how: Any) -> Run:
    """The run of one directory, or the ensemble of a list of them, loaded as `Run.load` is told."""
    if paths is None:
        raise UserError("run=null: give a run directory")
    if OmegaConf.is_list(paths) or isinstance(paths, list | tuple):
        return Run.load_ensemble(list(paths), **how)
    return Run.load(paths, **how)


def _is_empty(line: str, ids: Sequence[int]) -> bool:
    """Whether a line has no words, or none that SentencePiece leaves in: no piece but the end of sentence."""
    return not line.strip() or len(ids) <= 1


def _batches_by_length(lengths: dict[int, int], max_tokens: int) -> list[list[int]]:
    """Rows sorted by their lengths and cut so that sentences x longest stays within `max_tokens`."""
    batches: list[list[int]] = []
    for row in sorted(lengths, key=lambda row: -lengths[row]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
