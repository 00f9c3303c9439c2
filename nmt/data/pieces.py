"""Cut text with a SentencePiece model, each unknown word by itself.

SentencePiece joins neighbouring unknown characters in one piece, and in a model of words neighbouring unknown words.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from sentencepiece import SentencePieceProcessor

SPACE = "▁"  # SentencePiece's mark of a space
_WORD = re.compile(f".[^{SPACE}]*(?:{SPACE}\\Z)?", re.DOTALL)  # with the mark before it, or after the last


def encode_lines(processor: SentencePieceProcessor, lines: Sequence[str]) -> list[list[int]]:
    """Ids of each line's pieces and end of sentence."""
    rows, unk_id = processor.encode(list(lines), add_eos=True), processor.unk_id()
    return [
        [*(number for number, _, _ in cut(processor, line)), row[-1]] if unk_id in row else row
        for line, row in zip(lines, rows, strict=True)
    ]


def cut(processor: SentencePieceProcessor, text: str) -> Iterator[tuple[int, str, tuple[int, int]]]:
    """Yield the id, spelling and place in code points of each piece of `encode_lines`, but for the end."""
    found, unk_id = processor.encode(text, return_type="offset_mapping"), processor.unk_id()
    places, end = processor.normalize(text, with_offsets=True)[1], 0
    for number, piece, span in zip(found["ids"], found["pieces"], found["offsets"], strict=True):
        words = _WORD.findall(piece) if number == unk_id else [piece]
        ends = [*accumulate(map(len, words), initial=end)]
        spans = [(places[a], places[b]) for a, b in pairwise(ends)] if len(words) > 1 else [span]
        yield from ((number, *each) for each in zip(words, spans, strict=True))
        end = ends[-1]
