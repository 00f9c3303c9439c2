"""Find the files of a parallel corpus in a directory: one split in one format, for two languages."""

import logging
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nmt.errors import UserError
from nmt.lines import OPENERS

log = logging.getLogger(__name__)

ALIASES = {"train": ("train",), "val": ("val", "valid", "validation", "dev"), "test": ("test",)}
FEW_HELD_OUT = 100  # pairs; a smaller val or test says little
FORMATS = (".jsonl", ".json", ".tsv", ".csv", ".parquet")
_LINKS = (".align", ".talp")
_REFERENCES = "references"  # key of files such as test.1.fr in place of an ending
_SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)(?:-[0-9a-f]+)?")
_NAMED = {split: re.compile(rf"({'|'.join(names)})([._-]|\d|$)") for split, names in ALIASES.items()}
_HELD_OUT = re.compile(  # a word of a name, as in newstest2014, not a part of one, as in latest
    r"(?<![^\W\d_])(news[a-z]*)?(dev|(dev)?te?st|e?val(id|uation|idation)?)(set)?s?(?![^\W\d_])",
    re.IGNORECASE,
)
_PYTHON = 'python -X utf8 -c "import sys, '
_SEGMENTS = (
    _PYTHON + "html, re; [print(html.unescape(s)) for s in "
    r"re.findall(r'<seg[^>]*>\s*(.*?)\s*</seg>', open(sys.argv[1]).read())]"
    '" {name} > {split}.LANGUAGE'
)


def _cells(parts: str, condition: str) -> str:
    """The command that writes parts `s` of each element `t` of an XML file side by side."""
    cells = f"*(' '.join(''.join(s.itertext()).split()) for s in {parts})"
    loop = f"[print({cells}, sep='\\t') for _, t in E.iterparse(sys.argv[1]) if {condition}]"
    return f'{_PYTHON}xml.etree.ElementTree as E; {loop}" {{name}} > {{split}}.tsv'


_COMMANDS = {  # to convert files of other formats
    ".gz": "gzip -d {name}",
    ".xz": "xz -d {name}",
    ".bz2": "bzip2 -d {name}",
    ".zst": "zstd -d {name}",
    ".zip": "unzip {name}",
    **dict.fromkeys((".tar", ".tgz"), "tar xf {name}"),
    ".tmx": _cells("t.iter('seg')", "t.tag == 'tu'"),
    **dict.fromkeys(
        (".xlf", ".xliff"),
        _cells("t if s.tag.endswith(('source', 'target'))", "t.tag.endswith(('trans-unit', 'segment'))"),
    ),
    **dict.fromkeys((".sgm", ".sgml", ".xml"), _SEGMENTS),
    ".xlsx": f"pip install openpyxl; {_PYTHON}pandas; "
    "pandas.read_excel(sys.argv[1]).to_csv('{split}.csv', index=False)\" {name}",
}


@dataclass(frozen=True)
class Languages:
    """The direction of translation, and the columns or keys of the files.

    columns: for files without a header, the languages of the columns in order; or LANGUAGE:NAME, if a header or keys
    use other words. Raises UserError if the two languages are equal, or if `columns` does not hold each of them once.
    """

    src: str
    tgt: str
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.src == self.tgt:
            raise UserError(
                f"data.src_lang and data.tgt_lang are both {self.src}: set one of them to another"
            )
        for lang in (self.src, self.tgt):
            if "/" in lang or "\\" in lang:
                raise UserError(f"{lang!r} is no language: it is the ending of a file's name, or a column")
        named = [lang for lang, _ in self._columns]
        if self.columns is not None and not named.count(self.src) == named.count(self.tgt) == 1:
            columns = ",".join(self.columns)
            raise UserError(f"data.columns=[{columns}] must hold {self.src} and {self.tgt} once each")

    @cached_property
    def _columns(self) -> list[tuple[str, str]]:
        """The language and the name, perhaps empty, of each item of `columns`."""
        return [(lang, name) for lang, _, name in (each.partition(":") for each in self.columns or ())]

    @property
    def order(self) -> list[str]:
        """The languages of the columns of files without a header; empty if `columns` does not give them."""
        return [lang for lang, _ in self._columns if not any(name for _, name in self._columns)]

    @cached_property
    def names(self) -> list[str]:
        """Names of source, target and alignment in headers and keys."""
        return [dict(self._columns).get(each) or each for each in (self.src, self.tgt, "alignment")]

    @property
    def advice(self) -> str:
        """The setting for columns with other names."""
        first, second = sorted((self.src, self.tgt))
        return f"data.columns=[{first}:NAME,{second}:NAME]"

    def is_header(self, cells: Iterable[str]) -> bool:
        """True if the cells name both languages, in any case, with or without blanks around them."""
        return {name.casefold() for name in self.names[:2]} <= {cell.strip().casefold() for cell in cells}

    @cached_property
    def alignments_flipped(self) -> bool:
        """True if i of a link `i-j` in the files counts target words: by `columns`, or else by the alphabet."""
        order = [lang for lang, _ in self._columns] or sorted((self.src, self.tgt))
        return order.index(self.tgt) < order.index(self.src)


@dataclass(frozen=True)
class Files:
    """The files of a split.

    form: "text" for source, target and perhaps alignment; else the format of all shards. references: further
    translations of plain text, `test.2.fr` beside `test.1.fr`.
    """

    form: str
    paths: tuple[Path, ...]
    references: tuple[Path, ...] = ()

    @property
    def shards(self) -> list["Files"]:
        """The parts to read in turn."""
        return [self] if self.form == "text" else [Files(self.form, (path,)) for path in self.paths]


def find(directory: Path, split: str, languages: Languages) -> Files | None:
    """The files of a split in a directory, or None if it has none.

    Their name is an alias of the split (`ALIASES`), perhaps with the languages after it as in `train.en-fr.en`.
    Otherwise it begins with an alias, as `test_2016_flickr.en`; of several such test sets the first is taken. The
    training text may also be the only pair of files, or the only table, with any other name. Raises UserError for files
    of several formats or names, for a single side of a pair, for missing shards, and if all files have a format that is
    not read.
    """
    stems = _by_stem(directory, languages)
    if split != "train":
        _gather_references(stems, languages)
    found = [
        files
        for alias in ALIASES.get(split, (split,))
        for files in _candidates(directory, alias, stems.get(alias, {}), languages)
    ]
    for stem in () if found else _other_stems(split, stems):
        found += _candidates(directory, stem, stems[stem], languages, one_side=False)
        if found and split == "test":
            break
    if len(found) > 1:
        both = " and ".join(files.paths[0].name for files in found[:2])
        raise UserError(f"{directory} has both {both} for the {split} split: keep one of them")
    if not found:
        _check_formats(directory, split)
        return None
    if not found[0].paths[0].name.startswith(ALIASES.get(split, (split,))):
        log.info("the %s split is %s", split, found[0].paths[0])
    return found[0]


def more_test_sets(directory: Path, languages: Languages) -> dict[str, Files]:
    """The test sets of a directory, by name, without the one that `find` takes for `test`."""
    stems, first = _by_stem(directory, languages), find(directory, "test", languages)
    _gather_references(stems, languages)
    names = [stem for stem in stems if _NAMED["test"].match(stem)]
    found = {name: [*_candidates(directory, name, stems[name], languages, one_side=False)] for name in names}
    return {name: files[0] for name, files in found.items() if files and files[0] != first}


def missing_split_error(directory: Path, split: str, languages: Languages) -> UserError:
    """The error for a split without files. It lists the names that are looked for and the files in the directory."""
    names = " or ".join(ALIASES.get(split, (split,)))
    forms = ", ".join(FORMATS)
    return UserError(
        f"{directory} has no {names} as {forms} or as .{languages.src} with .{languages.tgt}; "
        f"{_holds(directory)}: set data.path, or data.src_lang and data.tgt_lang; or rename the "
        f"files, such as to {split}.{languages.src} and {split}.{languages.tgt}"
    )


Endings = dict[str, list[tuple[int, int, Path]]]  # ending -> number and total of shards, file


def _by_stem(directory: Path, languages: Languages) -> dict[str, Endings]:
    """Files by their name without its ending and without the languages, as in `train.en-fr`. Other endings are left
    out.

    Shards, named `train-00000-of-00002.parquet`, may also lie in the folder `data`, as on the Hub.
    """
    src, tgt = (re.escape(lang) for lang in (languages.src, languages.tgt))
    pair = re.compile(rf"(?<=.)[._-]({src}-{tgt}|{tgt}-{src})(?=[._-]|$)")
    endings = (*FORMATS, *_LINKS, f".{languages.src}", f".{languages.tgt}")
    stems: dict[str, Endings] = {}
    for folder in (directory, directory / "data"):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            name = _unpack_name(path.name)
            ending = max((each for each in endings if name.endswith(each)), key=len, default=None)
            if ending is None:
                continue
            if path.is_fifo() or path.is_char_device():
                raise UserError(f"{path} is a pipe or a device, which may have no end: give a plain file")
            stem = name.removesuffix(ending)
            shard = _SHARD.fullmatch(stem) if ending in FORMATS else None
            if shard or folder == directory:
                stem, number, total = shard.groups() if shard else (stem, 0, 0)
                files = stems.setdefault(pair.sub("", stem), {}).setdefault(ending, [])
                files.append((int(number), int(total), path))
    return stems


def _gather_references(stems: dict[str, Endings], languages: Languages) -> None:
    """Put `test.1.fr` and `test.2.fr`, if they have no source, with the files of `test`."""
    for stem in list(stems):
        base, _, number = stem.rpartition(".")
        sources = stems.get(base, {}).get(f".{languages.src}")
        if sources and number.isdecimal() and set(stems[stem]) == {f".{languages.tgt}"}:
            [(*_, path), *_] = stems.pop(stem)[f".{languages.tgt}"]
            stems[base].setdefault(_REFERENCES, []).append((int(number), 0, path))


def _other_stems(split: str, stems: Iterable[str]) -> list[str]:
    """Names that belong to a split but are no alias of it."""
    named = [stem for stem in stems if split in _NAMED and _NAMED[split].match(stem)]
    return named or [stem for stem in stems if split == "train" and not _HELD_OUT.search(stem)]


def _candidates(
    directory: Path, stem: str, files: Endings, languages: Languages, *, one_side: bool = True
) -> Iterator[Files]:
    """The files named `stem` in each format. Raises UserError for a single side of plain text, if `one_side`."""
    for form in FORMATS:
        shards = sorted(shard for shard in files.get(form, []) if shard[1])
        yield from (Files(form, (path,)) for _, total, path in files.get(form, []) if not total)
        if shards:
            total = shards[0][1]
            if [each[:2] for each in shards] != [(number, total) for number in range(total)]:
                names = list_names([path.name for *_, path in shards])
                raise UserError(f"{directory} should hold {total} shards of {stem}, but has {names}")
            yield Files(form, tuple(path for *_, path in shards))
    sides = [[path for *_, path in files.get(f".{lang}", [])] for lang in (languages.src, languages.tgt)]
    references = [path for *_, path in sorted(files.get(_REFERENCES, []))]
    if references and not sides[1]:
        sides[1] = [references.pop(0)]
    links = [path for ending in _LINKS for *_, path in files.get(ending, [])]
    for paths in (*sides, links):
        if len(paths) > 1:
            raise UserError(f"{directory} has both {paths[0].name} and {paths[1].name}: keep one of them")
    if all(sides):
        yield Files("text", (*sides[0], *sides[1], *links), tuple(references))
    elif any(sides) and one_side:
        lang = languages.tgt if sides[0] else languages.src
        raise UserError(
            f"{directory} has no {stem}.{lang}; {_holds(directory)}: set data.src_lang and data.tgt_lang"
        )


def _check_formats(directory: Path, split: str) -> None:
    """Raise UserError for the first file that may be the split but must be converted."""
    names = sorted(path.name for path in directory.iterdir())
    for name in _other_stems(split, [each for each in names if Path(_unpack_name(each)).suffix in _COMMANDS]):
        ending = Path(_unpack_name(name)).suffix
        is_packed = name != _unpack_name(name) and ending != ".tar"
        command = _COMMANDS[Path(name).suffix if is_packed else ending].format(
            name=shlex.quote(name), split=split
        )
        raise UserError(
            f"{directory / name} is in a format that is not read: convert it in its folder by {command}"
        )


def _unpack_name(name: str) -> str:
    """The name of a file without the ending .gz, .xz or .bz2."""
    return next((name.removesuffix(end) for end in OPENERS if name.endswith(end)), name)


def _holds(directory: Path) -> str:
    names = sorted(path.name for path in directory.iterdir())
    return f"it holds {list_names(names)}" if names else "it is empty"


def list_names(names: Sequence[object]) -> str:
    """The first twelve names, cut to 80 characters, for a message."""
    return ", ".join(f"{name!s:.80}" for name in names[:12]) + (", …" if len(names) > 12 else "")
