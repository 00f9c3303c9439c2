"""Find the files of a parallel corpus in a directory: one split in one format, for two languages."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.errors import UserError

ALIASES = {"train": ("train",), "val": ("val", "valid", "validation", "dev"), "test": ("test",)}
FORMATS = (".jsonl", ".tsv", ".csv", ".parquet")
_SHARD = r"-(\d+)-of-(\d+)(?:-[0-9a-f]+)?(\.jsonl|\.tsv|\.csv|\.parquet)(?:\.gz)?"


@dataclass(frozen=True)
class Languages:
    """The direction of translation, and the order of the columns in files without a header.

    Raises UserError where the two languages are the same, and where `columns` does not hold each of them once.
    """

    src: str
    tgt: str
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.src == self.tgt:
            raise UserError(
                f"data.src_lang and data.tgt_lang are both {self.src}: set one of them to another"
            )
        columns = self.columns
        if columns is not None and not columns.count(self.src) == columns.count(self.tgt) == 1:
            named = ",".join(columns)
            raise UserError(f"data.columns=[{named}] must hold {self.src} and {self.tgt} once each")

    @property
    def alignments_flipped(self) -> bool:
        """Whether i of a link `i-j` in the files counts target words: by `columns`, or else by the alphabet."""
        order = self.columns or sorted((self.src, self.tgt))
        return order.index(self.tgt) < order.index(self.src)


@dataclass(frozen=True)
class Files:
    """The files of a split. form: "text" for source, target and perhaps alignment; else the format of all shards."""

    form: str
    paths: tuple[Path, ...]

    @property
    def shards(self) -> list["Files"]:
        """The parts that are read one after another."""
        return [self] if self.form == "text" else [Files(self.form, (path,)) for path in self.paths]


def find(directory: Path, split: str, languages: Languages) -> Files | None:
    """The files of a split in a directory, or None where it has none.

    Raises UserError where there are files of several formats or names, one side of a pair only, or not all shards.
    """
    found = [files for alias in ALIASES[split] for files in _candidates(directory, alias, languages)]
    if len(found) > 1:
        both = " and ".join(files.paths[0].name for files in found[:2])
        raise UserError(f"{directory} has both {both} for the {split} split: keep one of them")
    return found[0] if found else None


def missing(directory: Path, split: str, languages: Languages) -> UserError:
    """The error for a split without files. It lists the names that are looked for and those that are there."""
    names = " or ".join(ALIASES[split])
    forms = ", ".join(FORMATS)
    return UserError(
        f"{directory} has no {names} as {forms} or as .{languages.src} with .{languages.tgt}; "
        f"{_holds(directory)}: set data.path, or data.src_lang and data.tgt_lang"
    )


def _candidates(directory: Path, alias: str, languages: Languages) -> Iterator[Files]:
    for form in FORMATS:
        for path in _existing(directory, f"{alias}{form}"):
            yield Files(form, (path,))
    for folder in (directory, directory / "data"):
        yield from _sharded(folder, alias)
    sides = [_existing(directory, f"{alias}.{lang}") for lang in (languages.src, languages.tgt)]
    links = [path for end in ("align", "talp") for path in _existing(directory, f"{alias}.{end}")]
    for paths in (*sides, links):
        if len(paths) > 1:
            raise UserError(f"{directory} has both {paths[0].name} and {paths[1].name}: keep one of them")
    if all(sides):
        yield Files("text", (*sides[0], *sides[1], *links))
    elif any(sides):
        lang = languages.tgt if sides[0] else languages.src
        raise UserError(
            f"{directory} has no {alias}.{lang}; {_holds(directory)}: set data.src_lang and data.tgt_lang"
        )


def _existing(directory: Path, name: str) -> list[Path]:
    return [path for path in (directory / name, directory / f"{name}.gz") if path.exists()]


def _sharded(folder: Path, alias: str) -> Iterator[Files]:
    """Shards named as on the Hub: train-00000-of-00002.parquet, or .jsonl.gz and so on."""
    shards: dict[str, list[tuple[int, int, Path]]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := re.fullmatch(re.escape(alias) + _SHARD, path.name):
            shards.setdefault(match[3], []).append((int(match[1]), int(match[2]), path))
    for form, found in shards.items():
        found.sort()  # by number, also where the numbers are not padded with zeros
        total = found[0][1]
        if [each[:2] for each in found] != [(number, total) for number in range(total)]:
            names = some([path.name for *_, path in found])
            raise UserError(f"{folder} should hold {total} shards of {alias}, but has {names}")
        yield Files(form, tuple(path for *_, path in found))


def _holds(directory: Path) -> str:
    names = sorted(path.name for path in directory.iterdir())
    return f"it holds {some(names)}" if names else "it is empty"


def some(names: Sequence[object]) -> str:
    """The first twelve names, for a message."""
    return ", ".join(map(str, names[:12])) + (", …" if len(names) > 12 else "")
