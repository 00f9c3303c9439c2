"""A run directory as an object: built by training, then all that is needed to translate and to score.

    run = Run.load("logs/…"); run.translate(["a small house ."])[0].text

A run directory is data: its configuration may build only what `ALLOWED_TARGETS` names, and its checkpoints
are loaded as weights only.
"""

import importlib
import json
import logging
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import hydra
import numpy as np
import torch
from datasets import Dataset
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from nmt import alignment, metrics
from nmt.data.batching import collate
from nmt.data.corpus import SPLITS
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import Hypothesis, search
from nmt.errors import UserError
from nmt.masks import padding_mask
from nmt.models.base import Translator
from nmt.models.ensemble import EnsembleTranslator

log = logging.getLogger(__name__)

MOST_PIECES = 512  # of a source line that is translated as one: time and memory grow with the square
ALLOWED_TARGETS = (
    "nmt.models.",
    "nmt.attention.",
    "nmt.data.corpus.read_",
    "nmt.masks.masked_",
    "nmt.metrics.",
)


@dataclass(frozen=True)
class Translation:
    """One translation of one line.

    text: detokenised. score: what the search ranks by (log p in nats over the length penalty). log_prob: the
    sum of log p in nats. source_words, target_words: whitespace words. weights: cross-attention between them
    [target words, source words], None for a model without attention. others: the rest of the n-best list.
    """

    source: str
    text: str
    score: float = 0.0
    log_prob: float = 0.0
    source_words: list[str] = field(default_factory=list)
    target_words: list[str] = field(default_factory=list)
    weights: np.ndarray | None = None
    others: tuple["Translation", ...] = ()

    @property
    def links(self) -> set[tuple[int, int]]:
        """Pharaoh links (source word, target word): each target word to its most attended source word."""
        return set() if self.weights is None else alignment.links_from_weights(self.weights)

    @classmethod
    def join(cls, source: str, parts: Sequence["Translation"]) -> "Translation":
        """The translation of a line out of those of its parts; weights between different parts are 0."""
        weights = None
        if all(part.weights is not None for part in parts):
            weights = block_diag(*(part.weights for part in parts))
        return cls(
            source,
            " ".join(part.text for part in parts if part.text),
            sum(part.score for part in parts),
            sum(part.log_prob for part in parts),
            [word for part in parts for word in part.source_words],
            [word for part in parts for word in part.target_words],
            weights,
        )


def block_diag(*blocks: Any) -> np.ndarray:
    """Blocks [T_i, S_i] along the diagonal of a matrix that is 0 elsewhere."""
    shapes = np.array([block.shape for block in blocks])
    whole = np.zeros(shapes.sum(axis=0))
    for block, (row, column) in zip(blocks, shapes.cumsum(axis=0) - shapes, strict=True):
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
    return whole


def instantiate(config: DictConfig, **keywords: Any) -> Any:
    """Build what `config` names, if it is allowed; a fault in the settings is a UserError of one line."""
    _check_targets(config)
    try:
        return hydra.utils.instantiate(config, **keywords)
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, ValueError):
            raise UserError(str(cause)) from error
        if isinstance(cause, TypeError):
            raise UserError(_explain_type_error(config, cause)) from error
        raise


def _explain_type_error(config: DictConfig, error: TypeError) -> str:
    target = str(config.get("_target_", "")).rsplit(".", 1)[-1]
    unexpected = str(error).rpartition("unexpected keyword argument ")[2]
    if unexpected.strip("'") in ("attention", "wiring"):
        return f"{target} has its own attention and takes no attention=NAME: leave attention= out"
    return f"{target}: {error}"


def _check_targets(config: Any) -> None:
    if OmegaConf.is_dict(config):
        target = config.get("_target_")
        if target is not None and not _may_build(str(target)):
            raise UserError(f"a run may not build {target}: only {', '.join(ALLOWED_TARGETS)}* are allowed")
        for key in config:
            _check_targets(config[key])
    elif OmegaConf.is_list(config):
        for part in config:
            _check_targets(part)


def _may_build(target: str) -> bool:
    """Whether `target` is defined where a run may build from: `nmt.models.gru.torch.load` is not, though reached so."""
    if not target.startswith(ALLOWED_TARGETS):
        return False
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return False
    return str(getattr(found, "__module__", "")).startswith("nmt.")


def build_translator(config: DictConfig, tokenizer: Tokenizer) -> Translator:
    """The model of a configuration's `model` node, with what follows from the vocabulary passed in."""
    return instantiate(
        config,
        src_vocab_size=tokenizer.src_vocab_size,
        tgt_vocab_size=tokenizer.tgt_vocab_size,
        joint_vocabulary=tokenizer.joint,
        pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )


def check_decoding(config: DictConfig, translator: Translator, tokenizer: Tokenizer) -> None:
    """Search one empty sentence, so that settings that do not go together end a run before its work: UserError."""
    training = translator.training
    try:
        search(translator.eval(), torch.tensor([[tokenizer.eos_id]]), **dict(config.items()))
    except ValueError as error:
        raise UserError(f"decoding: {error}") from error
    finally:
        translator.train(training)


def read_splits(config: DictConfig, splits: Sequence[str] = SPLITS) -> dict[str, Dataset]:
    """Those of `splits` that a configuration's `data` node describes."""
    for key in map(str, config):
        if OmegaConf.is_missing(config, key):
            raise UserError(f"data.{key} is required: give data.{key}=VALUE")
    return instantiate(config.reader, splits=list(splits))


class Run:
    """A trained run: configuration, tokenizer and translator, in evaluation mode."""

    def __init__(
        self, directory: Path, config: DictConfig, tokenizer: Tokenizer, translator: Translator
    ) -> None:
        self.directory, self.config = directory, config
        self.tokenizer, self.translator = tokenizer, translator.eval()

    @classmethod
    def load(cls, path: str | Path, *, checkpoint: str = "best", device: str = "auto") -> "Run":
        """Load a run directory; `checkpoint` is best, last, or a file's path. Raises UserError naming what lacks."""
        directory = Path(path)
        if not directory.is_dir():
            raise UserError(f"{directory}: no such run directory")
        config_file = directory / "config.yaml"
        if not config_file.is_file():
            raise UserError(f"{directory} is not a run directory: it has no config.yaml")
        try:
            config = OmegaConf.load(config_file)
            model_config, _ = config.model, config.data
            if not (OmegaConf.is_dict(model_config) and "_target_" in model_config):
                raise ValueError("model has no _target_")
        except (OmegaConfBaseException, OSError, ValueError, AttributeError) as error:
            raise UserError(f"{config_file} is broken: {' '.join(str(error).split())}") from error
        except Exception as error:
            if type(error).__module__.startswith("yaml"):
                raise UserError(f"{config_file} is not YAML: {' '.join(str(error).split())}") from error
            raise
        assert isinstance(config, DictConfig)
        tokenizer = Tokenizer.load(directory / "tokenizer")
        translator = build_translator(model_config, tokenizer)
        load_weights(translator, checkpoint_file(directory, checkpoint))
        return cls(directory, config, tokenizer, translator.to(_device(device)))

    @classmethod
    def load_ensemble(
        cls, paths: Sequence[str | Path], *, checkpoint: str = "best", device: str = "auto"
    ) -> "Run":
        """Several runs as one, whose probabilities are averaged; they must share their tokenizer's files."""
        if not paths:
            raise UserError("an ensemble needs a run directory or more")
        runs = [cls.load(path, checkpoint=checkpoint, device=device) for path in paths]
        pieces = [
            {file.name: file.read_bytes() for file in (run.directory / "tokenizer").iterdir()} for run in runs
        ]
        for run, own in zip(runs, pieces, strict=True):
            if own != pieces[0]:
                raise UserError(
                    f"{run.directory} and {runs[0].directory} have different tokenizers: an ensemble shares "
                    "one (train the others with data.tokenizer.model=FILE)"
                )
        ensemble = EnsembleTranslator([run.translator for run in runs])
        return cls(runs[0].directory, runs[0].config, runs[0].tokenizer, ensemble)

    @property
    def device(self) -> torch.device:
        return next(self.translator.parameters()).device

    @torch.inference_mode()
    def translate(
        self,
        lines: Iterable[str],
        *,
        num_best: int = 1,
        prefixes: Sequence[str] | None = None,
        max_tokens: int = 4096,
        show_progress: bool = False,
        **decoding: Any,
    ) -> list[Translation]:
        """Translate each line, in order: one Translation a line, an empty one for an empty line.

        `num_best` > 1 puts the other hypotheses in `.others`, best first (or in the order drawn). `prefixes` are
        what each translation must begin with. A line of more than `MOST_PIECES` pieces is cut at words into parts that
        are translated by themselves and joined, with a warning. `decoding` takes the keys of `configs/decoding/` (see
        `nmt.decoding.search`); without any, the beam has 5 hypotheses and lengths are normalised. Raises UserError
        for settings that do not go together.
        """
        lines = list(lines)
        if prefixes is not None and len(prefixes) != len(lines):
            raise UserError(f"{len(lines)} lines to translate but {len(prefixes)} prefixes")
        ids = self.tokenizer.encode_source(lines)
        cut = {row: self._parts(lines[row]) for row, own in enumerate(ids) if len(own) > MOST_PIECES}
        if cut:
            return self._translate_parts(
                lines,
                cut,
                prefixes,
                num_best=num_best,
                max_tokens=max_tokens,
                show_progress=show_progress,
                **decoding,
            )
        begun = None if prefixes is None else [row[:-1] for row in self.tokenizer.encode_target(prefixes)]
        results = [Translation(line, "") for line in lines]
        batches = _batches_by_length([i for i, line in enumerate(lines) if line.strip()], ids, max_tokens)
        with tqdm(total=len(lines), desc="translate", unit="lines", disable=not show_progress) as bar:
            for rows in batches:
                try:
                    found = search(
                        self.translator,
                        self._pad([ids[row] for row in rows]),
                        num_best=num_best,
                        prefixes=None if begun is None else self._pad([begun[row] for row in rows]),
                        need_weights=self.translator.has_attention,
                        **(decoding or {"beam_size": 5, "length_alpha": 1.0}),
                    )
                except ValueError as error:
                    raise UserError(str(error)) from error
                for row, hypotheses in zip(rows, found, strict=True):
                    best, *others = (self._translation(lines[row], each) for each in hypotheses)
                    results[row] = Translation(**{**vars(best), "others": tuple(others)})
                bar.update(len(rows))
        return results

    def _parts(self, line: str) -> list[str]:
        """A line cut in halves, at words where it has any, until no part has more than `MOST_PIECES` pieces."""
        [own] = self.tokenizer.encode_source([line])
        if len(own) <= MOST_PIECES or len(line) == 1:
            return [line]
        words = line.split()
        if len(words) > 1:
            halves = [" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]
        else:
            halves = [line[: len(line) // 2], line[len(line) // 2 :]]
        return [part for half in halves for part in self._parts(half)]

    def _translate_parts(
        self, lines: list[str], cut: dict[int, list[str]], prefixes: Sequence[str] | None, **settings: Any
    ) -> list[Translation]:
        """Translations of lines of which some are `cut` into parts; a prefix is that of the first part."""
        parts, begun = [], []
        for row, line in enumerate(lines):
            own = cut.get(row, [line])
            parts += own
            begun += [prefixes[row] if prefixes is not None else "", *[""] * (len(own) - 1)]
        log.warning(
            "%d of %d lines have more than %d pieces: each is translated in parts (the first is line %d)",
            *(len(cut), len(lines), MOST_PIECES, min(cut) + 1),
        )
        found = iter(self.translate(parts, prefixes=None if prefixes is None else begun, **settings))
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
        Yields nothing where the model has no attention.
        """
        if len(sources) != len(targets):
            raise UserError(f"{len(sources)} source lines but {len(targets)} target lines")
        src_ids, tgt_ids = self.tokenizer.encode_source(sources), self.tokenizer.encode_target(targets)
        for rows in _batches_by_length(list(range(len(sources))), src_ids, max_tokens):
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
            if chosen is not None and not 0 <= chosen < number:
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
        dataset: Dataset,
        *,
        scorers: Mapping[str, Any] | None = None,
        num_bootstrap: int = 1000,
        show_progress: bool = False,
        **decoding: Any,
    ) -> tuple[dict[str, Any], list[Translation]]:
        """Scores of a split's translations by `scorers`, else BLEU, chrF and TER; AER where gold is there.

        `references` is the digest of what was translated and scored against: equal where scores compare.
        """
        sources, references = list(dataset["src"]), list(dataset["tgt"])
        translations = self.translate(sources, show_progress=show_progress, **decoding)
        hypotheses = [each.text for each in translations]
        scores: dict[str, Any] = (
            metrics.score(hypotheses, references, num_bootstrap=num_bootstrap)
            if scorers is None
            else metrics.score_with(scorers, hypotheses, references, num_bootstrap=num_bootstrap)
        )
        scores["num_sentences"] = len(sources)
        scores["references"] = metrics.digest(sources, references)
        if self.translator.has_attention:
            scores |= self._score_attention(dataset, sources, references)
        return scores, translations

    def _score_attention(
        self, dataset: Dataset, sources: list[str], references: list[str]
    ) -> dict[str, dict[str, float]]:
        """Statistics of the attention over forced references, and its alignment error where gold is there."""
        chosen = {
            row: self.choose_head(weights, None, None)
            for row, weights in self.attentions(sources, references)
        }
        scores: dict[str, dict[str, float]] = {"attention": alignment.statistics(chosen.values())}
        if "alignment" in dataset.column_names:
            golds = [alignment.parse_talp(line) for line in dataset["alignment"]]
            links = [
                alignment.links_from_weights(self.between_words(chosen[row], sources[row], references[row]))
                for row in range(len(sources))
            ]
            sures, possibles = zip(*golds, strict=True)
            result = alignment.score_alignments(links, sures, possibles)
            scores["aer"] = {"score": result.aer, "precision": result.precision, "recall": result.recall}
        return scores

    def split(self, name: str, data: DictConfig | None = None) -> Dataset:
        """A split of `data`, else of the data the run was trained on. Raises UserError where there is none."""
        if name not in SPLITS:
            raise UserError(f"split={name}: choose one of {', '.join(SPLITS)}")
        splits = read_splits(self.config.data if data is None else data, [name])
        if name not in splits:
            raise UserError(f"split={name}: the data have no such split")
        return splits[name]

    def _pad(self, rows: list[list[int]]) -> Tensor:
        tensors = [torch.tensor(row) for row in rows]
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


def open_run(paths: Any, *, checkpoint: str, device: str) -> Run:
    """The run of one directory, or the ensemble of a list of them."""
    if isinstance(paths, str):
        return Run.load(paths, checkpoint=checkpoint, device=device)
    return Run.load_ensemble(list(paths), checkpoint=checkpoint, device=device)


def checkpoint_file(directory: Path, checkpoint: str) -> Path:
    """The file that `checkpoint` (best, last or a path) names in a run directory."""
    file = (
        directory / "checkpoints" / f"{checkpoint}.ckpt"
        if checkpoint in ("best", "last")
        else Path(checkpoint)
    )
    if not file.is_file():
        raise UserError(f"{file}: no such checkpoint; checkpoint= is best, last or a file")
    return file


def load_weights(translator: Translator, file: Path) -> None:
    """Load a checkpoint's weights, and nothing else of it, into a translator. Raises UserError naming the file."""
    try:
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
        state = {
            name.removeprefix("translator."): value
            for name, value in checkpoint["state_dict"].items()
            if name.startswith("translator.")
        }
    except pickle.UnpicklingError as error:  # its message advises to load the file all the same
        raise UserError(
            f"{file} is broken or no checkpoint (it holds more than weights): give another with checkpoint="
        ) from error
    except (
        RuntimeError,
        EOFError,
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        OSError,
    ) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"{file} is broken or no checkpoint ({reason}): give another with checkpoint="
        ) from error
    try:
        translator.load_state_dict(state)
    except RuntimeError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:3])[:300]
        raise UserError(f"{file} does not fit the model in config.yaml: {reason}") from error
    if not all(torch.isfinite(weight).all() for weight in translator.parameters()):
        raise UserError(f"{file} holds weights that are no numbers, as after a training that diverged")


def write_atomically(path: Path, text: str) -> None:
    """Write a file beside `path`, then rename it: `path` is whole or as it was. Raises UserError.

    What is there and no plain file, as /dev/stdout, is written to and stays what it is.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("w", encoding="utf-8") as device:
            device.write(text)
        return
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, "utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot write ({error.strerror})") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_scores(
    directory: Path, split: str, scores: dict[str, Any], translations: list[Translation]
) -> None:
    """Write metrics.json and hypotheses.txt; those of another split than test are named after it."""
    suffix = "" if split == "test" else f"_{split}"
    text = "".join(f"{each.text}\n" for each in translations)
    content = (
        json.dumps({"split": split, **_training(directory), **scores}, indent=2, ensure_ascii=False) + "\n"
    )
    for name, body in ((f"hypotheses{suffix}.txt", text), (f"metrics{suffix}.json", content)):
        write_atomically(directory / name, body)


def _training(directory: Path) -> dict[str, Any]:
    """What training cost, as metrics.json has it: scoring again does not measure it again and must not lose it."""
    try:
        return {"training": json.loads((directory / "metrics.json").read_text("utf-8"))["training"]}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def report(scores: dict[str, Any]) -> str:
    """The scores as lines a person reads: `BLEU 35.1 ± 1.5  nrefs:1|…`."""
    lines = []
    for name, result in scores.items():
        if isinstance(result, dict) and "signature" in result:
            interval = "" if result["ci"] is None else f" ± {result['ci']:.2f}"
            label = metrics.LABELS.get(name, name)
            lines.append(f"{label:4} {result['score']:.2f}{interval}  {result['signature']}")
    if "aer" in scores:
        result = scores["aer"]
        lines.append(
            f"AER  {result['score']:.3f}  precision {result['precision']:.3f}  recall {result['recall']:.3f}"
        )
    return "\n".join(lines)


def _batches_by_length(rows: list[int], ids: list[list[int]], max_tokens: int) -> list[list[int]]:
    """Rows sorted by length and cut so that sentences x longest stays within `max_tokens`."""
    batches: list[list[int]] = []
    for row in sorted(rows, key=lambda row: -len(ids[row])):
        if batches and (len(batches[-1]) + 1) * len(ids[batches[-1][0]]) <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={name} cannot be used here: {str(error).splitlines()[0]}") from error
