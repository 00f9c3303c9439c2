"""Links between the words of a sentence pair: parsing, formatting, and their error against gold links.

A link (i, j) joins source word i and target word j, both from 0 over whitespace words.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.errors import UserError
from nmt.lines import read_lines

Links = set[tuple[int, int]]


def parse_pharaoh(line: str) -> Links:
    """Parse links `0-0 1-2`. Raises UserError for anything else."""
    sure, possible = parse_talp(line)
    if sure != possible:
        raise UserError(f"a Pharaoh line has links i-j only, not {line.strip()!r}")
    return sure


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Format links as `0-0 1-2`, sorted."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def parse_talp(line: str) -> tuple[Links, Links]:
    """Parse sure links (`i-j`) and possible links (`ipj`); every sure link is possible too. Raises UserError."""
    sure: Links = set()
    possible: Links = set()
    for text in line.split():
        match = re.fullmatch(r"(\d+)([-p])(\d+)", text)
        if match is None:
            raise UserError(f"{text!r} is no link: links are i-j (sure) or ipj (possible), from 0")
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return sure, possible


def read_alignments(path: str | Path, *, possible: bool = True) -> list[tuple[Links, Links]]:
    """Sure and possible links of each line of a `.talp` or Pharaoh file; an empty line is a pair without links.

    The file may be compressed. Without `possible` all links must be sure, as in a Pharaoh file.

    Raises UserError with the file and the number of a faulty line.
    """
    pairs = []
    for number, line in enumerate(read_lines(Path(path)), start=1):
        try:
            pairs.append(parse_talp(line) if possible else (parse_pharaoh(line),) * 2)
        except UserError as error:
            raise UserError(f"{path}:{number}: {error}") from None
    return pairs


class AlignmentScore(NamedTuple):
    """Alignment error rate, precision and recall over a corpus, all from 0 to 1."""

    aer: float
    precision: float
    recall: float


def score_alignments(
    hypotheses: Sequence[Links], sures: Sequence[Links], possibles: Sequence[Links]
) -> AlignmentScore:
    """Precision, recall and error against sure links S and possible links P, S within P (Och & Ney 2003).

        AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)
        precision = |A and P| / |A|        recall = |A and S| / |S|

    Counts are summed over the corpus first. AER is 0 if A and S are empty; precision is 1 if A is empty, recall is 1
    if S is empty. Raises ValueError if the numbers of sentences differ.
    """
    num_links = num_sure = num_in_sure = num_in_possible = 0
    for found, sure, possible in zip(hypotheses, sures, possibles, strict=True):
        num_links += len(found)
        num_sure += len(sure)
        num_in_sure += len(found & sure)
        num_in_possible += len(found & (possible | sure))
    total = num_links + num_sure
    return AlignmentScore(
        aer=1 - (num_in_sure + num_in_possible) / total if total else 0.0,
        precision=num_in_possible / num_links if num_links else 1.0,
        recall=num_in_sure / num_sure if num_sure else 1.0,
    )
