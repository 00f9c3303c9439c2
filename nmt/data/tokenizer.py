"""SentencePiece for a language pair: train, encode, decode, and the whitespace word of each piece."""

import re
from collections.abc import Iterable, Sequence
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from nmt.data.segmentation import Segmenter, segmenter
from nmt.errors import UserError
from nmt.files import replacing

MODEL_TYPES = ("unigram", "bpe")
_TRAINED_IDS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
# Part of what a model follows from: another number of threads adds in another order and gives another model.
_NUM_THREADS = 4
_SPACE = "▁"  # SentencePiece's mark of a space


class Tokenizer:
    """A source and a target vocabulary, which are one where `joint`.

    `pad_id`, `unk_id`, `bos_id` and `eos_id` hold on both sides: 0, 1, 2 and 3 in a vocabulary trained here,
    what the model says in one brought along. A vocabulary trained here reads text as SentencePiece's nmt_nfkc
    makes it: in NFKC, without control characters, each run of white space one space. With `lowercase`, which no model
    knows of itself, text is lower-cased before. Pickles to the models' bytes, so that a hash of it follows its content.
    Raises UserError where a model is broken or lacks one of
    the four, or two models disagree.
    """

    def __init__(
        self,
        source_model: bytes,
        target_model: bytes | None,
        lowercase: bool = False,
        *,
        name: str = "the model",
    ) -> None:
        self.joint, self.lowercase = target_model is None, lowercase
        self._source = _processor(source_model, name)
        self._target = self._source if target_model is None else _processor(target_model, name)
        ids = _special_ids(self._source)
        if ids != _special_ids(self._target):
            both = f"{_listed(ids)} and {_listed(_special_ids(self._target))}"
            raise UserError(f"{name}: the two models must have the same special ids, not {both}")
        absent = [key for key, value in ids.items() if value < 0]
        if absent:
            options = " ".join(f"--{key}={value}" for key, value in _TRAINED_IDS.items())
            raise UserError(f"{name} has no {', '.join(absent)}: train it with spm_train {options}")
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = ids.values()

    @classmethod
    def train(
        cls,
        src_lines: Iterable[str],
        tgt_lines: Iterable[str],
        *,
        model_type: str,
        joint: bool,
        vocab_size: int,
        character_coverage: float,
        byte_fallback: bool = False,
        lowercase: bool = False,
    ) -> "Tokenizer":
        """A vocabulary of exactly `vocab_size` pieces, special ones too: one for both sides, or one each.

        The same lines give the same model. With `byte_fallback`, 256 of the pieces are bytes and nothing is
        unknown. Raises UserError where the text is empty or `vocab_size` does not suit it, with the size that
        does.
        """
        if model_type not in MODEL_TYPES:
            raise UserError(f"data.tokenizer.model_type={model_type}: choose one of {', '.join(MODEL_TYPES)}")
        if not 0.98 <= character_coverage <= 1:
            raise UserError(f"data.tokenizer.character_coverage={character_coverage}: give 0.98 to 1.0")
        if vocab_size <= len(_TRAINED_IDS):
            special = f"{len(_TRAINED_IDS)} of the pieces are special"
            raise UserError(f"data.tokenizer.vocab_size={vocab_size}: too small, {special}")
        options: dict[str, Any] = {
            "model_type": model_type,
            "vocab_size": vocab_size,
            "character_coverage": character_coverage,
            "byte_fallback": byte_fallback,
        }
        if lowercase:
            src_lines, tgt_lines = map(str.lower, src_lines), map(str.lower, tgt_lines)
        if joint:
            model = _train(chain(src_lines, tgt_lines), "the training text", **options)
            return cls(model, None, lowercase=lowercase)
        source = _train(src_lines, "the source side", **options)
        return cls(source, _train(tgt_lines, "the target side", **options), lowercase=lowercase)

    @classmethod
    def from_models(
        cls, source: str | Path, target: str | Path | None = None, *, lowercase: bool = False
    ) -> "Tokenizer":
        """SentencePiece models: one file for both sides, or one each. Raises UserError naming the file."""
        files = [Path(source)] if target is None else [Path(source), Path(target)]
        models = []
        for file in files:
            try:
                models.append(file.read_bytes())
            except OSError as error:
                raise UserError(f"{file}: cannot read the SentencePiece model ({error.strerror})") from error
            _processor(models[-1], str(file))
        name = " and ".join(map(str, files))
        return cls(models[0], models[1] if len(models) > 1 else None, lowercase=lowercase, name=name)

    @classmethod
    def load(cls, directory: str | Path, *, lowercase: bool = False) -> "Tokenizer":
        """What `save` wrote; whether text is lower-cased is not in its files. Raises UserError naming the file that is
        missing or broken."""
        joint, *pair = (Path(directory) / name for name in ("joint.model", "src.model", "tgt.model"))
        if joint.exists():
            return cls.from_models(joint, lowercase=lowercase)
        for file in pair:
            if not file.exists():
                kind = (
                    "no such folder"
                    if not Path(directory).is_dir()
                    else f"it holds no joint.model and no {file.name}"
                )
                raise UserError(f"{directory}: no tokenizer there, {kind}; copy a run directory as a whole")
        return cls.from_models(*pair, lowercase=lowercase)

    def save(self, directory: str | Path) -> None:
        """Write joint.model, or src.model and tgt.model. Each file is whole or as it was."""
        directory = Path(directory)
        models = (
            {"joint.model": self._source}
            if self.joint
            else {"src.model": self._source, "tgt.model": self._target}
        )
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for name, processor in models.items():
                with replacing(directory / name, shared=True) as new:
                    new.write_bytes(processor.serialized_model_proto())
            for name in {"joint.model", "src.model", "tgt.model"} - set(models):
                (directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{directory}: cannot write the tokenizer ({error.strerror})") from error

    def __reduce__(self) -> tuple[Any, ...]:
        target = None if self.joint else self._target.serialized_model_proto()
        return Tokenizer, (self._source.serialized_model_proto(), target, self.lowercase)

    @property
    def src_vocab_size(self) -> int:
        return self._source.get_piece_size()

    @property
    def tgt_vocab_size(self) -> int:
        return self._target.get_piece_size()

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line's pieces and end of sentence. A blank line is the end of sentence alone."""
        return _encode(self._source, self._cased(lines))

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line's pieces and end of sentence. Batching adds the beginning of sentence."""
        return _encode(self._target, self._cased(lines))

    def segmenters(self, alpha: float) -> tuple[Segmenter, Segmenter]:
        """What cuts source and target text by chance, alike. Raises UserError where the models cannot be so."""
        source, target = (
            segmenter(each.serialized_model_proto(), alpha) for each in (self._source, self._target)
        )
        if type(source) is not type(target):
            raise UserError(
                f"data.tokenizer.sampling={alpha} is one thing to a bpe model and another to a unigram model: "
                "give two of a kind"
            )
        return source, target

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Target text of each row up to its end of sentence, padding and beginning left out.

        An unknown piece reads ` ⁇ `; bytes that make no character read �.
        """
        return [self._target.decode([int(row[place]) for place in self._text_places(row)]) for row in rows]

    def align_source(self, text: str) -> tuple[list[int], list[int]]:
        """What `encode_source` makes of one line, and for each id the index of its word in `text.split()`.

        -1 is no word: the end of sentence. Words are those of the text as it was given, whatever
        normalisation did to it; a word that it removed has no piece.
        """
        return _align(self._source, *self._cased([text]))

    def align_target(self, text: str) -> tuple[list[int], list[int]]:
        """As `align_source`, for the target side."""
        return _align(self._target, *self._cased([text]))

    def target_words(self, ids: Sequence[int]) -> list[int]:
        """For each id the index of its word in `decode([ids])[0].split()`, -1 for special ids."""
        words = [-1] * len(ids)
        places = self._text_places(ids)
        decoded = self._target.decode([int(ids[place]) for place in places], return_type="offset_mapping")
        for place, word in zip(places, _words(decoded), strict=True):
            words[place] = word
        return words

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """A label for each id: its piece, special ones by name, bytes as the character that they make."""
        return _labels(self._source, ids)

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """As `source_pieces`, for the target side."""
        return _labels(self._target, ids)

    def _cased(self, lines: Sequence[str]) -> Sequence[str]:
        """As the models read them. Lower case has the same words, though not always as many characters."""
        return [line.lower() for line in lines] if self.lowercase else lines

    def _text_places(self, ids: Sequence[int]) -> list[int]:
        """Where in `ids` there is text: before the end of sentence, and neither padding nor beginning."""
        places = []
        for place, each in enumerate(ids):
            if each == self.eos_id:
                break
            if each not in (self.pad_id, self.bos_id):
                places.append(place)
        return places


def _train(lines: Iterable[str], what: str, *, vocab_size: int, **options: Any) -> bytes:
    """The bytes of a SentencePiece model. SentencePiece leaves out lines above 4,192 bytes."""
    model = BytesIO()
    options |= _TRAINED_IDS
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=vocab_size,
            num_threads=_NUM_THREADS,
            minloglevel=2,  # errors only: they are raised, and nothing is printed
            **options,
        )
    except RuntimeError as error:
        raise UserError(_training_fault(str(error), what, vocab_size)) from error
    return model.getvalue()


def _training_fault(message: str, what: str, vocab_size: int) -> str:
    """SentencePiece's message as what to do."""
    if high := re.search(r"Vocabulary size too high .* <= (\d+)", message):
        return f"data.tokenizer.vocab_size={vocab_size} is too large for {what}: set it to {high[1]} or less"
    if low := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        reason = f"its characters alone need {low[1]}"
        remedy = f"set it to {low[1]} or more, or lower data.tokenizer.character_coverage"
        return f"data.tokenizer.vocab_size={vocab_size} is too small for {what} ({reason}): {remedy}"
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return f"{what} is empty: it has no line to learn from that is neither blank nor above 4,192 bytes"
    if "Unable to cast" in message:
        return f"{what} holds what is not Unicode text"
    return f"SentencePiece cannot train on {what}: {message}"


def _processor(model: bytes, name: str) -> SentencePieceProcessor:
    try:
        if not model:
            raise RuntimeError("empty")
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise UserError(f"{name} is broken or no SentencePiece model") from error


def _special_ids(processor: SentencePieceProcessor) -> dict[str, int]:
    return {key: getattr(processor, key)() for key in _TRAINED_IDS}


def _listed(ids: dict[str, int]) -> str:
    return ", ".join(f"{key}={value}" for key, value in ids.items())


def _encode(processor: SentencePieceProcessor, lines: Sequence[str]) -> list[list[int]]:
    return processor.encode(list(lines), add_eos=True) if len(lines) else []


def _align(processor: SentencePieceProcessor, text: str) -> tuple[list[int], list[int]]:
    encoded = processor.encode(text, return_type="offset_mapping")
    words = _words({**encoded, "text": text})
    return [*encoded["ids"], processor.eos_id()], [*words, -1]


def _words(mapping: dict[str, Any]) -> list[int]:
    """For each piece the index of its word in `text.split()`, by the pieces' offsets in code points.

    A piece belongs to the last word that it touches. A lone `▁`, and a byte or a part of a normalised
    character that has no width of its own, belongs to the piece after it, where there is none to the one
    before. -1 where there are no words.
    """
    word_at = [-1] * len(mapping["text"])
    for index, word in enumerate(re.finditer(r"\S+", mapping["text"])):
        word_at[word.start() : word.end()] = [index] * (word.end() - word.start())
    touched = [
        -1 if piece == _SPACE else max(word_at[begin:end], default=-1)
        for piece, (begin, end) in zip(mapping["pieces"], mapping["offsets"], strict=True)
    ]
    return _filled(_filled(touched[::-1])[::-1])


def _filled(words: list[int]) -> list[int]:
    """Each -1 replaced by the entry before it."""
    filled, last = [], -1
    for word in words:
        last = word if word >= 0 else last
        filled.append(last)
    return filled


def _labels(processor: SentencePieceProcessor, ids: Sequence[int]) -> list[str]:
    """Pieces for a person to read. Of a character's bytes the first shows it and the others show `·`."""
    ids = [int(each) for each in ids]
    labels = [processor.id_to_piece(each) for each in ids]
    place = 0
    while place < len(ids):
        width = 1
        if processor.is_byte(ids[place]):
            run = bytes(int(label[1:-1], 16) for label in labels[place : place + 4] if _is_byte_label(label))
            width = _character_width(run)
            character = run[:width].decode("utf-8", errors="replace")
            if character.isprintable() and character != "\ufffd":
                labels[place : place + width] = [character, *["·"] * (width - 1)]
        place += width
    return labels


def _is_byte_label(label: str) -> bool:
    return re.fullmatch(r"<0x[0-9A-F]{2}>", label) is not None


def _character_width(run: bytes) -> int:
    """How many of the first bytes make one UTF-8 character; 1 where none do."""
    for width in range(1, len(run) + 1):
        try:
            run[:width].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return width
    return 1
