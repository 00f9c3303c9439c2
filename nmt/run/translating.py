"""Translate lines of text: encode, cut lines that are too long, search in batches, decode."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, islice, pairwise
from typing import TypeVar

import numpy as np
import torch
from tqdm import tqdm

from nmt import alignment, kernels
from nmt.config.types import Units
from nmt.data.unknown_characters import UnknownCharacters
from nmt.decoding import DecodingSettings, Hypothesis, PrefixError, search
from nmt.errors import UserError, check_lines
from nmt.run.model import Model, batches_by_length
from nmt.run.paths import refuse_stored_dictionary
from nmt.run.translation import Translation
from nmt.run.unknown_words import dictionary_of, spell_unknown

T = TypeVar("T")

log = logging.getLogger(__name__)

MOST_PIECES = 512  # of a source line translated as a whole: time and memory grow with the square
MOST_PIECES_OF_A_DOCUMENT = 16_384  # read by sentences: time and memory grow with the length
# A full stop after a single letter, or between two, belongs to an initial or an abbreviation.
_END = re.compile(
    r"""(?:(?<![\s.]\w)(?<!^\w)\.|[!?…؟۔।॥།။።។]) ["'”’»)\]]*\s+ | [。！？｡]+[」』”’）〉》\s]*""", re.VERBOSE
)


class TranslatingModel(Model):
    """A model that translates lines."""

    @torch.inference_mode()
    @kernels.packed_weights()
    def translate(
        self,
        lines: Iterable[str],
        decoding: DecodingSettings | None = None,
        *,
        num_best: int = 1,
        prefixes: Sequence[str] | None = None,
        max_tokens: int = 4096,
        first_line: int = 1,
        need_weights: bool = True,
        units: Units = "auto",
        unknown: UnknownCharacters | None = None,
        show_progress: bool = False,
    ) -> list[Translation]:
        """Translate each line, in order: a Translation per line, empty for an empty line.

        Without `decoding`, the search is that of the run's scores. With `num_best` above 1, `.others` holds the other
        hypotheses, best first (or in the order drawn). Each translation begins with its line of `prefixes`. A line of
        more than `MOST_PIECES` pieces is cut into sentences, and long sentences at words. The parts are translated
        separately and joined. A document may be longer; its last sentences are left out. A warning counts lines from
        `first_line`. A line that is empty or was cut has no others. Without `need_weights`, translations have no
        attention, and are faster. Their words are `units` (`alignment.choose_units`). `unknown` counts unknown
        characters; without it they give a warning. Raises UserError for settings that do not fit the model.
        """
        check_lines(lines=lines, prefixes=prefixes)
        lines = list(lines)
        if decoding is None:
            decoding = self.decoding
            refuse_stored_dictionary(decoding.dictionary)
        dictionary = dictionary_of(decoding, self.translator)
        numbers = range(first_line, first_line + len(lines))
        ids = self.tokenizer.encode_source(lines)
        with nullcontext(unknown) if unknown else UnknownCharacters(self.tokenizer) as counts:
            counts.count(lines, "lines")
            counts.count(prefixes or [], "prefixes", is_target=True)
        if prefixes is not None:
            _check_prefixes(prefixes, lines, ids, numbers)
        parts = self._cut_lines(lines, ids, numbers)
        if any(len(own) > self.most_pieces for own in ids):
            ids = self.tokenizer.encode_source(_flat(parts))
        begun = None if prefixes is None else self._prefix_ids(prefixes, parts)
        chosen = [alignment.choose_units(line, units) for line in lines]
        each_part = iter(
            self._translate_parts(
                _flat(parts),
                ids,
                begun,
                _flat([[number] * len(own) for number, own in zip(numbers, parts, strict=True)]),
                _flat([[of_line] * len(own) for of_line, own in zip(chosen, parts, strict=True)]),
                decoding,
                dictionary,
                units=units,
                num_best=num_best,
                max_tokens=max_tokens,
                need_weights=need_weights and self.translator.has_attention,
                show_progress=show_progress,
            )
        )
        translations = [list(islice(each_part, len(own))) for own in parts]
        return [
            found[0] if own == [line] else Translation.join(line, found, of_line)
            for line, own, found, of_line in zip(lines, parts, translations, chosen, strict=True)
        ]

    def _cut_lines(
        self, lines: list[str], ids: Sequence[list[int]], numbers: Sequence[int]
    ) -> list[list[str]]:
        """The parts of each line: the line itself, unless it is too long. Warns of the lines that are cut."""
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
        return parts

    def _prefix_ids(self, prefixes: Sequence[str], parts: list[list[str]]) -> list[list[int]]:
        """The first pieces of each part's translation: for the first part of a line its prefix, else none."""
        texts = [[prefix, *[""] * (len(own) - 1)] for prefix, own in zip(prefixes, parts, strict=True)]
        return [row[:-1] for row in self.tokenizer.encode_target(_flat(texts))]

    def _translate_parts(
        self,
        texts: list[str],
        ids: list[list[int]],
        begun: list[list[int]] | None,
        numbers: list[int],
        src_units: list[str],
        decoding: DecodingSettings,
        dictionary: Mapping[str, str] | None,
        *,
        units: str,
        num_best: int,
        max_tokens: int,
        need_weights: bool,
        show_progress: bool,
    ) -> list[Translation]:
        """Translations of texts that are short enough. An error gives the line number of its text."""
        lengths = {row: len(own) for row, own in enumerate(ids) if not _is_empty(texts[row], own)}
        results = [self._empty(text, own, need_weights) for text, own in zip(texts, src_units, strict=True)]
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
                        need_weights=need_weights or dictionary is not None,
                    )
                except PrefixError as error:
                    raise UserError(
                        f"the prefix of line {numbers[rows[error.row]]} {error.reason}"
                    ) from error
                except (ValueError, FloatingPointError) as error:
                    raise UserError(str(error)) from error
                for row, hypotheses in zip(rows, found, strict=True):
                    best, *others = (
                        self._translation(texts[row], each, src_units[row], units, dictionary, need_weights)
                        for each in hypotheses
                    )
                    results[row] = replace(best, others=tuple(others))
                bar.update(len(rows))
        return results

    @property
    def most_pieces(self) -> int:
        """Most pieces of a line that is translated as a whole."""
        most = MOST_PIECES_OF_A_DOCUMENT if self.translator.reads_documents else MOST_PIECES
        return min(most, self.translator.max_length or most)

    def _cut(self, number: int, line: str) -> list[str]:
        """The parts of a line that is too long; of a document the first sentences, with a warning that names the
        others.
        """
        if not self.translator.reads_documents:
            return self._parts(line)
        sentences = line.split(f" {alignment.SEPARATOR} ")
        # Each sentence but the last has a separator in place of its end.
        sizes = [len(own) for own in self.tokenizer.encode_source(sentences)]
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
        """Cut a line into sentences, and these in halves, at words if possible, until no part exceeds `most_pieces`."""
        [own] = self.tokenizer.encode_source([line])
        if len(own) <= self.most_pieces or len(line) == 1:
            return [line]
        parts = split_sentences(line)
        if len(parts) == 1:
            words = line.split()
            middle = len(words) // 2
            parts = [" ".join(words[:middle]), " ".join(words[middle:])]
            if len(words) == 1:
                [word] = words
                parts = [word[: len(word) // 2], word[len(word) // 2 :]]
        return [shorter for part in parts for shorter in self._parts(part)]

    def _translation(
        self,
        source: str,
        hypothesis: Hypothesis,
        src_units: str,
        units: str,
        dictionary: Mapping[str, str] | None,
        need_weights: bool,
    ) -> Translation:
        spelled = spell_unknown(self.tokenizer, source, hypothesis, dictionary)
        text = self.tokenizer.decoded_text(hypothesis.ids, spelled)
        line = " ".join(text.splitlines())  # a line in, a line out
        found = Translation(source, line, hypothesis.score, hypothesis.log_prob)
        if hypothesis.weights is None or not need_weights:
            words = alignment.split_units(source, src_units), alignment.split_units(text, units)
            return replace(found, source_words=words[0], target_words=words[1])
        of_source = self.tokenizer.source_side(source, src_units)
        of_target = self.tokenizer.decoded_side(hypothesis.ids, units, spelled)
        rows = hypothesis.weights.float().numpy()[: len(hypothesis.ids)]  # without the row that emits EOS
        return replace(
            found,
            source_words=of_source.labels,
            target_words=of_target.labels,
            weights=alignment.weights_between(rows, of_target, of_source),
            source_sizes=of_source.sizes,
        )

    def _empty(self, text: str, src_units: str, need_weights: bool) -> Translation:
        """The translation of a text without words."""
        words = self.tokenizer.source_side(text, src_units).labels
        return Translation(
            text, "", source_words=words, weights=np.zeros((0, len(words))) if need_weights else None
        )


def split_sentences(line: str) -> list[str]:
    """The sentences of a line, cut after full stops and other ends, without the spaces between them."""
    ends = [0, *(found.end() for found in _END.finditer(line)), len(line)]
    parts = [line[begin:end].strip() for begin, end in pairwise(ends)]
    return [part for part in parts if part]


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


def _is_empty(line: str, ids: Sequence[int]) -> bool:
    """True if a line has no words, or if SentencePiece removes them: no piece but the end of sentence."""
    return not line.strip() or len(ids) <= 1


def _flat(lists: Iterable[list[T]]) -> list[T]:
    return list(chain.from_iterable(lists))
