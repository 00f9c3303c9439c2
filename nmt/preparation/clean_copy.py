"""Write a clean copy of a corpus: the training pairs without problems, and the held-out splits as they are."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.atomic import new_folder
from nmt.data.find import FEW_HELD_OUT
from nmt.data.formats import Row
from nmt.errors import UserError
from nmt.preparation.counts import Counts
from nmt.preparation.examination import Split
from nmt.preparation.problems import PROBLEMS, has

DROPPED = "dropped.tsv"
NEW_SPLITS = ("train", "val", "test")
_LINES_AT_ONCE = 20  # neighbours, which tell much about each other, go into the same split
_HELD_OUT_SHARE, _MOST_HELD_OUT = 0.05, 2_000


def write_copy(
    output: Path, train: Split, held_out: Sequence[Split], rules: Sequence[str], seed: int
) -> tuple[dict[str, int], Counts]:
    """Write the folder `output`. Returns the numbers of pairs kept per new split and dropped per rule, and the counts
    of the new training text.

    rules: the problems whose pairs are dropped. Blocks of lines become val if there is none, and test if there is
    neither.
    """
    keep = ~has(train.bits, *rules)
    if not keep.any():
        most, rule = max((has(train.bits, rule).sum(), rule) for rule in rules)
        raise UserError(
            f"no pair of {train.files.paths[0]} is left; the rule {rule} leaves out {most:,}. Without output= the "
            f"report shows them; rules.{rule}=false switches the rule off"
        )
    has_val = any(split.name == "val" for split in held_out)
    new = NEW_SPLITS[: 1 if has_val else 2 if held_out else 3]
    splits = np.zeros(len(keep), np.int8) if has_val else _draw_splits(keep, new[1:], seed)
    repeated = np.isin(train.pairs, train.pairs[keep & (splits > 0)]) & (splits == 0)
    names = [name for name in PROBLEMS if name in rules]
    counts, of_train = Counter[str](), Counts(train.counts.units)
    is_train = keep & ~repeated & (splits == 0)
    with new_folder(output) as folder, ExitStack() as files:

        def start(name: str) -> Any:
            return files.enter_context((folder / name).open("w", encoding="utf-8", newline="\n"))

        write = [_writer(start, name, train) for name in new]
        log = start(DROPPED)
        log.write("place\trule\n")
        for block in train.read("writing"):
            places = np.flatnonzero(is_train[block.first : block.first + len(block.rows)])
            of_train.add([block.src[place] for place in places], [block.tgt[place] for place in places])
            for number, place, row in zip(count(block.first), block.places, block.rows, strict=False):
                if keep[number] and not repeated[number]:
                    write[splits[number]](row)
                    counts[NEW_SPLITS[splits[number]]] += 1
                else:
                    bits = train.bits[number : number + 1]
                    rule = next((name for name in names if has(bits, name)[0]), "held_out")
                    counts[rule] += 1
                    log.write(f"{place}\t{rule}\n")
        for path in (path for split in held_out for path in (*split.files.paths, *split.files.references)):
            shutil.copyfile(path, folder / path.name)
    return dict(counts), of_train


def _draw_splits(keep: NDArray[np.bool_], new: Sequence[str], seed: int) -> NDArray[np.int8]:
    """The new split of each pair by its number, 0 for training: each has blocks of kept lines, drawn with the seed."""
    kept = np.flatnonzero(keep)
    least = min(FEW_HELD_OUT, len(kept) // 10)
    number = min(_MOST_HELD_OUT, max(least, int(len(kept) * _HELD_OUT_SHARE)))
    if not number:
        names = " and ".join(new)
        raise UserError(f"{len(kept)} pairs are too few to take {names} from: give 10, or these splits")
    size = min(_LINES_AT_ONCE, number)
    blocks = np.random.default_rng(seed).permutation(len(kept) // size)
    splits = np.zeros(len(keep), np.int8)
    chosen = blocks[: number // size * len(new)]
    for split, some in enumerate(np.split(chosen, len(new)), 1):
        splits[kept[(some[:, None] * size + np.arange(size)).ravel()]] = split
    return splits


def _writer(start: Callable[[str], Any], name: str, split: Split) -> Callable[[Row], None]:
    """A function that writes rows: as plain files if the split has this form, else as JSON lines."""
    languages = split.languages
    is_text = split.files.form == "text"
    names = (
        [f"{name}.{each}" for each in (languages.src, languages.tgt, "align")]
        if is_text
        else [f"{name}.jsonl"]
    )
    handles = [start(each) for each in names[: len(split.files.paths)]]

    def write(row: Row) -> None:
        links = [
            " ".join(map(_flip, each.split())) if languages.alignments_flipped else each for each in row[2:]
        ]
        texts = *row[:2], *links
        if not is_text:
            texts = (json.dumps(dict(zip(languages.names, texts, strict=False)), ensure_ascii=False),)
        for handle, text in zip(handles, texts, strict=True):
            handle.write(f"{text}\n")

    return write


def _flip(link: str) -> str:
    """`i-j` as `j-i`, and `ipj` as `jpi`."""
    kind = "p" if "p" in link else "-"
    return kind.join(reversed(link.split(kind)))
