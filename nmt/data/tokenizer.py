"""SentencePiece for a language pair: train, encode, decode, and find the word of each piece."""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from nmt.alignment import SEPARATOR, Side, make_side, split_units
from nmt.atomic import read_at_most, write_together
from nmt.data.pieces import SPACE, cut, encode_lines
from nmt.data.segmentation import Segmenter, segmenter
from nmt.errors import UserError, check_lines

MODEL_TYPES = ("unigram", "bpe", "word", "char")
NORMALIZATION = "nmt_nfkc"  # SentencePiece's default
_TRAINED_IDS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
# Fixed: another number of threads adds in another order and gives another model.
_NUM_THREADS = 4
_MOST_BYTES = 2**26  # of a model; 250,000 pieces take 6 MB
_MOST_TEXT = 256  # bytes of a piece, and of the text that replaces a character; NFKC's longest has 33


class Tokenizer:
    """The source and the target vocabulary, which are the same if `joint`.

    `pad_id`, `unk_id`, `bos_id` and `eos_id` are the same on both sides: 0, 1, 2 and 3 in a vocabulary trained here, or
    the ids of a given model. With `lowercase`, text is lower-cased first. A Tokenizer pickles to the bytes of its
    models, so that its hash depends on its content. Raises UserError if a model is broken or lacks any of the four ids,
    and if two models have different ids.
    """

    def __init__(
        self,
        source_model: bytes,
        target_model: bytes | None = None,
        lowercase: bool = False,
        *,
        name: str = "the model",
    ) -> None:
        self.joint, self.lowercase = target_model is None, lowercase
        self._source = _processor(source_model, name)
        self._target = self._source if target_model is None else _processor(target_model, name)
        ids = _special_ids(self._source)
        if ids != _special_ids(self._target):
            both = f"{_list_ids(ids)} and {_list_ids(_special_ids(self._target))}"
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
        lowercase: bool = False,
        documents: bool = False,
        normalization: str = NORMALIZATION,
    ) -> "Tokenizer":
        """Train a vocabulary of `vocab_size` pieces, special pieces included, or of fewer if the text gives no more.

        If `joint`, both sides share it, else each side gets a vocabulary. `normalization` is SentencePiece's rule for
        rewriting text before it is cut, on the target side too. With `documents`, `SEPARATOR` is always a single piece.
        The same lines give the same model. Raises UserError if the text is empty or `vocab_size` does not suit it.
        """
        check_lines(src_lines=src_lines, tgt_lines=tgt_lines)
        if model_type not in MODEL_TYPES:
            raise UserError(f"data.tokenizer.model_type={model_type}: choose one of {', '.join(MODEL_TYPES)}")
        options: dict[str, Any] = {
            "model_type": model_type,
            "vocab_size": vocab_size,
            "character_coverage": character_coverage,
            "normalization_rule_name": normalization,
        }
        if documents:
            options["user_defined_symbols"] = [SPACE + SEPARATOR]
        if lowercase:
            src_lines, tgt_lines = map(str.lower, src_lines), map(str.lower, tgt_lines)
        if joint:
            model = _train(chain(src_lines, tgt_lines), "the training text", **options)
            return cls(model, lowercase=lowercase)
        source = _train(src_lines, "the source side", **options)
        return cls(source, _train(tgt_lines, "the target side", **options), lowercase=lowercase)

    @classmethod
    def from_models(cls, *files: str | Path, lowercase: bool = False) -> "Tokenizer":
        """Load SentencePiece models: a file for both sides, or a file for each. Raises UserError naming the file."""
        models = []
        for file in files:
            try:
                models.append(read_at_most(Path(file), _MOST_BYTES))
            except OSError as error:
                raise UserError(f"{file}: cannot read the SentencePiece model ({error.strerror})") from error
            _processor(models[-1], str(file))
            _check_texts(models[-1], str(file))
        target = models[1] if len(models) > 1 else None
        return cls(models[0], target, lowercase=lowercase, name=" and ".join(map(str, files)))

    @classmethod
    def load(cls, directory: str | Path, *, lowercase: bool = False) -> "Tokenizer":
        """Load the models that `save` wrote; they do not record `lowercase`. Raises UserError."""
        joint = (Path(directory) / "joint.model").exists()
        return cls.from_models(*model_files(directory, joint=joint), lowercase=lowercase)

    def save(self, directory: str | Path) -> None:
        """Write joint.model, or src.model and tgt.model. Raises WriteError."""
        write_together(dict(zip(model_files(directory, joint=self.joint), self.models, strict=True)))

    def __reduce__(self) -> tuple[Any, ...]:
        source, *target = self.models
        return Tokenizer, (source, target[0] if target else None, self.lowercase)

    @property
    def models(self) -> tuple[bytes, ...]:
        """The SentencePiece model of both sides, or the models of source and target."""
        sides = (self._source,) if self.joint else (self._source, self._target)
        return tuple(each.serialized_model_proto() for each in sides)

    @property
    def src_vocab_size(self) -> int:
        return self._source.get_piece_size()

    @property
    def tgt_vocab_size(self) -> int:
        return self._target.get_piece_size()

    @property
    def separator_id(self) -> int | None:
        """The source piece between the sentences of a document; None if there is none."""
        found = self._source.piece_to_id(SPACE + SEPARATOR)
        return None if found == self.unk_id else found

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line's pieces and end of sentence. A blank line gives only the end of sentence."""
        return encode_lines(self._source, self._set_case(lines))

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line's pieces and end of sentence. Batching adds the beginning of sentence."""
        return encode_lines(self._target, self._set_case(lines))

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Spelling of each id in the source vocabulary."""
        return self._source.id_to_piece(list(ids))

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """Spelling of each id in the target vocabulary."""
        return self._target.id_to_piece(list(ids))

    def segmenters(self, alpha: float) -> tuple[Segmenter, Segmenter]:
        """Random segmenters of source and target text. Raises UserError if the models have different types."""
        source, target = (
            segmenter(each.serialized_model_proto(), alpha) for each in (self._source, self._target)
        )
        if type(source) is not type(target):
            raise UserError(
                f"data.tokenizer.sampling={alpha} means one thing for a bpe model and another for a unigram model: "
                "give two models of one type"
            )
        return source, target

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Target text of each row up to its end of sentence, without padding and beginning of sentence.

        An unknown piece gives ` ⁇ `; bytes that are not UTF-8 give �.
        """
        return [self._target.decode([int(row[place]) for place in self._text_places(row)]) for row in rows]

    def count_rewritten(self, lines: Sequence[str]) -> int:
        """Number of target lines that `decode` cannot give back, spacing aside."""
        written = self.decode(self.encode_target(lines))
        wanted = [" ".join(line.split()) for line in self._set_case(lines)]
        return sum(one != other for one, other in zip(written, wanted, strict=True))

    def unknown_characters(self, lines: Sequence[str], *, is_target: bool = False) -> list[list[str]]:
        """Characters, or words of a model of words, that the vocabulary does not know, for each line that has some."""
        processor, cased = self._target if is_target else self._source, self._set_case(lines)
        found = []
        for line, ids in zip(cased, processor.encode([*cased]), strict=True):
            if self.unk_id in ids:
                texts = (  # of the letters of one character, as of ½, only the last has a span
                    (line[begin : max(end, begin + 1)], SPACE in piece)
                    for number, piece, (begin, end) in cut(processor, line)
                    if number == self.unk_id
                )
                found.append([*chain(*([text.strip()] if is_word else text for text, is_word in texts))])
        return found

    def align_source(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of `encode_source` for a line, and for each id the index of its word in `text.split()`, -1 for the
        end.

        A word that normalisation removes has no piece.
        """
        return self.encode_source([text])[0], self.source_side(text, "words").groups

    def align_target(self, text: str) -> tuple[list[int], list[int]]:
        """As `align_source`, for the target side."""
        return self.encode_target([text])[0], self.target_side(text, "words").groups

    def target_words(self, ids: Sequence[int]) -> list[int]:
        """For each id, the index of its word in `decode([ids])[0].split()`, -1 for special ids."""
        return self.decoded_side(ids, "words").groups

    def source_side(self, text: str, units: str = "auto") -> Side:
        """The units of a source line and the groups of `encode_source`; the end of sentence belongs to no unit."""
        return self._side(self._source, text, units)

    def target_side(self, text: str, units: str = "auto") -> Side:
        """As `source_side`, for the target side."""
        return self._side(self._target, text, units)

    @property
    def unknown_sign(self) -> str:
        """The text of an unknown target piece: a word in a model without a piece for spaces."""
        return " ⁇" if self._target.piece_to_id(SPACE) == self.unk_id else "⁇"

    def decoded_text(self, ids: Sequence[int], spelled: Mapping[int, str]) -> str:
        """As `decode` for a row; the pieces at the places of `spelled` have that text."""
        return self._decode_with_offsets(ids, spelled)["text"] if spelled else self.decode([ids])[0]

    def decoded_side(
        self, ids: Sequence[int], units: str = "auto", spelled: Mapping[int, str] = MappingProxyType({})
    ) -> Side:
        """The units of `decoded_text` and the groups of all ids; special ids belong to no unit."""
        places, decoded = self._text_places(ids), self._decode_with_offsets(ids, spelled)
        side = make_side(decoded["text"], decoded["pieces"], decoded["offsets"], units)
        groups = [-1] * len(ids)
        for place, group in zip(places, side.groups, strict=True):
            groups[place] = group
        return side._replace(groups=groups)

    def _decode_with_offsets(self, ids: Sequence[int], spelled: Mapping[int, str]) -> dict[str, Any]:
        places = self._text_places(ids)
        pieces: list[Any] = [int(ids[place]) for place in places]
        if spelled:
            given = zip(places, self._target.id_to_piece(pieces), strict=True)
            pieces = [spelled.get(place, piece) for place, piece in given]
        return self._target.decode(pieces, return_type="offset_mapping")

    def _side(self, processor: SentencePieceProcessor, text: str, units: str) -> Side:
        [cased] = self._set_case([text])
        pieces = [*cut(processor, cased)]
        side = make_side(cased, [each[1] for each in pieces], [each[2] for each in pieces], units)
        labels = side.labels if units == "pieces" else split_units(text, units)
        return Side(labels, [*side.groups, -1], side.sizes)

    def _set_case(self, lines: Sequence[str]) -> Sequence[str]:
        """The lines as the models read them. Lower case keeps the words, but not always the number of characters."""
        check_lines(lines=lines)
        return [line.lower() for line in lines] if self.lowercase else lines

    def _text_places(self, ids: Sequence[int]) -> list[int]:
        """Places of text in `ids`: before the end of sentence, without padding and beginning of sentence."""
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
            hard_vocab_limit=False,  # fewer pieces if the text gives no more
            num_threads=_NUM_THREADS,
            minloglevel=2,  # errors only: they are raised, and nothing is printed
            **options,
        )
    except RuntimeError as error:
        message = str(error)
        if "sentences_.empty()" in message or "all_chars_count" in message:
            reason = "is empty: it has no line to learn from that is neither blank nor above 4,192 bytes"
            raise UserError(f"{what} {reason}") from error
        reason = message.rpartition("] ")[2] or message
        raise UserError(
            f"data.tokenizer.vocab_size={vocab_size}: SentencePiece cannot train on {what}: {reason}"
        ) from error
    return model.getvalue()


def _processor(model: bytes, name: str) -> SentencePieceProcessor:
    try:
        if not model:
            raise RuntimeError("empty")
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise UserError(f"{name} is broken or no SentencePiece model") from error


def _check_texts(model: bytes, name: str) -> None:
    """Raise UserError if a model makes much text of a piece or of a character."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

    proto = ModelProto.FromString(model)
    texts = [each.piece.encode() for each in proto.pieces]
    for rules in (proto.normalizer_spec.precompiled_charsmap, proto.denormalizer_spec.precompiled_charsmap):
        # The size of an index, the index, then the texts that it leads to
        texts += rules[4 + int.from_bytes(rules[:4], "little") :].split(b"\0")
    if (longest := max(map(len, texts))) > _MOST_TEXT:
        raise UserError(
            f"{name} makes {longest:,} bytes of a piece or character: {_MOST_TEXT} at most are read"
        )


def _special_ids(processor: SentencePieceProcessor) -> dict[str, int]:
    return {key: getattr(processor, key)() for key in _TRAINED_IDS}


def _list_ids(ids: dict[str, int]) -> str:
    return ", ".join(f"{key}={value}" for key, value in ids.items())


def model_files(directory: str | Path, *, joint: bool) -> list[Path]:
    """The SentencePiece files in the directory of a saved tokenizer."""
    names = ("joint.model",) if joint else ("src.model", "tgt.model")
    return [Path(directory) / name for name in names]
