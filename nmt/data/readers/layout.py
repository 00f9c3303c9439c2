"""Where the files of a corpus are: which languages and which split, in which form."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.errors import UserError

ALIASES = {"train": ("train",), "val": ("val", "valid", "validation", "dev"), "test": ("test",)}
FORMATS = (".jsonl", ".tsv", ".csv", ".parquet")
# How a name ends that says a form or a packing, none of them read but in the forms above.
_NO_LANGUAGE = re.compile(
    r"(.*\.)?(jsonl?|ndjson|txt|text|tsv|csv|parquet|arrow|feather|xml|sgml?|tmx|xlsx|ya?ml"
    r"|gz|bz2|xz|zst|lz4|zip|tar|tgz|7z)",
    re.IGNORECASE,
)
_SHARD = r"-(\d+)-of-(\d+)(?:-[0-9a-f]+)?(\.parquet|(?:\.jsonl|\.tsv|\.csv)(?:\.gz)?)"


@dataclass(frozen=True)
class Languages:
    """What is asked of the files: a direction, and the order in which headerless columns and alignments come.

    columns: the names of a .tsv file's columns in order, or None. Raises UserError where they do not hold
    both languages, or the two languages are one.
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
        """Whether `i` of a link `i-j` in the files counts target words, by `columns`, else the alphabet."""
        order = self.columns if self.columns is not None else sorted((self.src, self.tgt))
        return order.index(self.tgt) < order.index(self.src)


@dataclass(frozen=True)
class Files:
    """The files of one split: source, target and perhaps alignment where `form` is text, else shards."""

    form: str
    paths: tuple[Path, ...]

    @property
    def shards(self) -> list["Files"]:
        """What is read one after another; the sides of one text are read together."""
        return [self] if self.form == "text" else [Files(self.form, (path,)) for path in self.paths]


def find(directory: Path, split: str, languages: Languages) -> Files | None:
    """The files of a split in a directory, or None where it has none.

    Raises UserError where there are several candidates, or one side of a pair of plain files only.
    """
    names = sorted(path.name for path in directory.iterdir())
    candidates: list[Files] = []
    halves: list[str] = []
    for alias in ALIASES[split]:
        for form in FORMATS:
            forms = (form,) if form == ".parquet" else (form, f"{form}.gz")
            found = [name for name in (f"{alias}{each}" for each in forms) if name in names]
            candidates += [Files(form, (directory / name,)) for name in found]
        candidates += _shards(directory, alias)
        sides = [
            [
                directory / f"{alias}.{ending}{packed}"
                for ending in endings
                for packed in ("", ".gz")
                if f"{alias}.{ending}{packed}" in names
            ]
            for endings in ((languages.src,), (languages.tgt,), ("align", "talp"))
        ]
        for paths in sides:
            if len(paths) > 1:
                raise UserError(f"{directory} has both {paths[0].name} and {paths[1].name}: keep one of them")
        if sides[0] and sides[1]:
            candidates.append(Files("text", tuple(path for paths in sides for path in paths)))
        elif sides[0] or sides[1]:
            halves.append(f"{alias}.{languages.tgt if sides[0] else languages.src}")
    if len(candidates) > 1:
        both = " and ".join(each.paths[0].name for each in candidates[:2])
        raise UserError(f"{directory} has both {both} for the {split} split: keep one of them")
    if halves and not candidates:
        raise UserError(f"{directory} has no {halves[0]}{_there(names, ALIASES[split])}")
    return candidates[0] if candidates else None


def missing(directory: Path, split: str, languages: Languages) -> UserError:
    """The error for a split that is not there: what was looked for, and what is."""
    names = sorted(path.name for path in directory.iterdir())
    alias = ALIASES[split][0]
    looked = ", ".join(f"{alias}{form}" for form in FORMATS)
    pair = f"{alias}.{languages.src} with {alias}.{languages.tgt}"
    also = f" (or {', '.join(ALIASES[split][1:])} for {alias})" if len(ALIASES[split]) > 1 else ""
    return UserError(f"{directory} has no {looked}, nor {pair}{also}{_there(names, ALIASES[split])}")


def _there(names: list[str], aliases: Sequence[str]) -> str:
    """What a directory holds, the languages of its plain files, and what of the split is in no form that is read."""
    langs, unread = set(), []
    for name in names:
        stem, _, ending = name.partition(".")
        lang = ending.removesuffix(".gz")
        if re.sub(r"-\d+-of-\d+.*", "", stem) not in aliases or lang in ("align", "talp", ""):
            continue
        if not _is_read(f".{ending}") and _NO_LANGUAGE.fullmatch(lang):
            unread.append(name)
        elif stem in aliases and not _is_read(f".{ending}"):
            langs.add(lang)
    advice = ""
    if langs:
        advice = f"; its languages are {', '.join(sorted(langs))}: set data.src_lang and data.tgt_lang"
    if unread:
        forms = f"{', '.join(FORMATS)} and a plain file for each language, all but .parquet also as .gz"
        advice += f"; {unread[0]} is in no form that is read; these are {forms}"
    there = f"; it holds {some(names)}" if names else "; it is empty"
    return there + (advice or "; set data.path to the folder of the data")


def _is_read(ending: str) -> bool:
    return ending in FORMATS or (ending.removesuffix(".gz") in FORMATS and ending != ".parquet.gz")


def _shards(directory: Path, alias: str) -> list[Files]:
    """The Hub's own layout: train-00000-of-00002.parquet (or .jsonl.gz, …), in the directory or in its data/."""
    found = []
    for folder in (directory, directory / "data"):
        entries = sorted(folder.iterdir()) if folder.is_dir() else []
        matches = [(path, re.fullmatch(re.escape(alias) + _SHARD, path.name)) for path in entries]
        for ending in sorted({match[3] for _, match in matches if match}):
            shards = [(path, int(m[1]), int(m[2])) for path, m in matches if m and m[3] == ending]
            shards.sort(key=lambda shard: shard[1])  # whether their numbers are padded or not
            other = next((path for path, _, total in shards if total != shards[0][2]), None)
            if other is not None:
                names = f"{shards[0][0].name} and {other.name}"
                raise UserError(f"{folder} has {names}, shards of two sets: keep one of the sets")
            if [number for _, number, _ in shards] != list(range(shards[0][2])):
                names = some([path.name for path, _, _ in shards])
                raise UserError(f"{folder} should hold {shards[0][2]} shards of {alias}, but has {names}")
            found.append(Files(ending.removesuffix(".gz"), tuple(path for path, _, _ in shards)))
    return found


def some(names: Sequence[str]) -> str:
    """The first twelve names, for a message."""
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
