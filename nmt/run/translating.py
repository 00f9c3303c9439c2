"""Translation of lines of text: encoded, cut where they are too long, searched in batches, decoded."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TypeVar

import numpy as np
import torch
from tqdm import tqdm

from nmt import alignment
from nmt.decoding import BEAM, DecodingSettings, Hypothesis, PrefixError, search
from nmt.errors import UserError
from nmt.run.model import Model, batches_by_length
from nmt.run.translation import Translation

T = TypeVar("T")

log = logging.getLogger(__name__)

MOST_PIECES = 512  # of a source line that is translated as one: time and memory grow with the square
MOST_PIECES_OF_A_DOCUMENT = 16_384  # read sentence by sentence, so that they grow with its length


class TranslatingModel(Model):
    """A model that translates lines."""

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
        need_weights: bool = True,
        show_progress: bool = False,
    ) -> list[Translation]:
        """Translate each line, in order: one Translation a line, an empty one for an empty line.

        With `num_best` above 1, `.others` holds the other hypotheses, best first (or in the order drawn). Each
        translation begins with its line of `prefixes`. A line of more than `MOST_PIECES` pieces is cut at words into
        parts, which are translated by themselves and joined (of a document, which may be longer, sentences are left
        out); a warning counts lines from `first_line`. A line that is empty or was cut has no others. Without
        `need_weights` translations have no attention, and come sooner. Raises UserError for settings that do not fit
        the model.
        """
        lines = list(lines)
        numbers = range(first_line, first_line + len(lines))
        ids = self.tokenizer.encode_source(lines)
        if prefixes is not None:
            _check_prefixes(prefixes, lines, ids, numbers)
        most = self.most_pieces
        parts = [
            [line] if len(own) <= most or _is_empty(line, own) else self._cut(number, line)
            for number, line, own in zip(numbers, lines, ids, strict=True)
        ]
        if cut := [number for number, own in zip(numbers, parts, strict=True) if len(own) > 1]:
            log.warning(
                "%d of %d lines have more than %d pieces: each is translated in parts (the first is line %d)",
                *(len(cut), len(lines), most, cut[0]),
            )
        if any(len(own) > most for own in ids):
            ids = self.tokenizer.encode_source(_flat(parts))
        begun = None if prefixes is None else self._begun(prefixes, parts)
        each_part = iter(
            self._translate_parts(
                _flat(parts),
                ids,
                begun,
                _flat([[number] * len(own) for number, own in zip(numbers, parts, strict=True)]),
                decoding,
                num_best=num_best,
                max_tokens=max_tokens,
                need_weights=need_weights and self.translator.has_attention,
                show_progress=show_progress,
            )
        )
        translations = [list(islice(each_part, len(own))) for own in parts]
        return [
            found[0] if own == [line] else Translation.join(line, found)
            for line, own, found in zip(lines, parts, translations, strict=True)
        ]

    def _begun(self, prefixes: Sequence[str], parts: list[list[str]]) -> list[list[int]]:
        """The pieces that each part's translation begins with: those of its line's prefix for the first, else none."""
        texts = [[prefix, *[""] * (len(own) - 1)] for prefix, own in zip(prefixes, parts, strict=True)]
        return [row[:-1] for row in self.tokenizer.encode_target(_flat(texts))]

    def _translate_parts(
        self,
        texts: list[str],
        ids: list[list[int]],
        begun: list[list[int]] | None,
        numbers: list[int],
        decoding: DecodingSettings,
        *,
        num_best: int,
        max_tokens: int,
        need_weights: bool,
        show_progress: bool,
    ) -> list[Translation]:
        """Translations of texts that are short enough; an error names the line of a text by its number."""
        lengths = {row: len(own) for row, own in enumerate(ids) if not _is_empty(texts[row], own)}
        results = [_empty(text, need_weights) for text in texts]
        with tqdm(
            total=len(texts), desc="translate", unit="lines", disable=None if show_progress else True
        ) as bar:
            for rows in batches_by_length(lengths, max_tokens):
                try:
                    found = search(
                        self.translator,
                        self.pad([ids[row] for row in rows]),
                        decoding,
                        num_best=num_best,
                        prefixes=None if begun is None else self.pad([begun[row] for row in rows]),
                        need_weights=need_weights,
                    )
                except PrefixError as error:
                    raise UserError(
                        f"the prefix of line {numbers[rows[error.row]]} {error.reason}"
                    ) from error
                except ValueError as error:
                    raise UserError(str(error)) from error
                for row, hypotheses in zip(rows, found, strict=True):
                    best, *others = (self._translation(texts[row], each) for each in hypotheses)
                    results[row] = replace(best, others=tuple(others))
                bar.update(len(rows))
        return results

    @property
    def most_pieces(self) -> int:
        """Of a line that is translated as one."""
        most = MOST_PIECES_OF_A_DOCUMENT if self.translator.reads_documents else MOST_PIECES
        return min(most, self.translator.max_length or most)

    def _cut(self, number: int, line: str) -> list[str]:
        """The parts of a line that is too long; of a document its first sentences, with a warning that names the
        others.
        """
        if not self.translator.reads_documents:
            return self._parts(line)
        sentences = line.split(f" {alignment.SEPARATOR} ")
        sizes = [len(own) + 1 for own in self.tokenizer.encode_source(sentences)]
        kept = int(np.searchsorted(np.cumsum(sizes), self.most_pieces, side="right"))
        log.warning(
            "line %d: %s left out, a document has at most %d pieces",
            number,
            f"sentences {kept + 1} to {len(sentences)} are"
            if kept
            else "all but the beginning of sentence 1 is",
            self.most_pieces,
        )
        return self._parts(f" {alignment.SEPARATOR} ".join(sentences[: max(1, kept)]))[:1]

    def _parts(self, line: str) -> list[str]:
        """A line cut in halves, at words where it has any, until no part has more than `most_pieces`."""
        [own] = self.tokenizer.encode_source([line])
        if len(own) <= self.most_pieces or len(line) == 1:
            return [line]
        words = line.split()
        if len(words) > 1:
            halves = [" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]
        else:
            [word] = words
            halves = [word[: len(word) // 2], word[len(word) // 2 :]]
        return [part for half in halves for part in self._parts(half)]

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


def _check_prefixes(
    prefixes: Sequence[str], lines: list[str], ids: list[list[int]], numbers: Sequence[int]
) -> None:
    if len(prefixes) != len(lines):
        raise UserError(f"{len(lines)} lines to translate but {len(prefixes)} prefixes")
    for number, line, own, prefix in zip(numbers, lines, ids, prefixes, strict=True):
        if prefix.strip() and _is_empty(line, own):
            raise UserError(
                f"line {number} is empty, and so is its translation, which cannot begin with {prefix!r}"
            )


def _empty(text: str, need_weights: bool) -> Translation:
    """The translation of a text without words."""
    words = text.split()
    return Translation(
        text, "", source_words=words, weights=np.zeros((0, len(words))) if need_weights else None
    )


def _is_empty(line: str, ids: Sequence[int]) -> bool:
    """Whether a line has no words, or none that SentencePiece leaves in: no piece but the end of sentence."""
    return not line.strip() or len(ids) <= 1


def _flat(lists: Iterable[list[T]]) -> list[T]:
    return list(chain.from_iterable(lists))
