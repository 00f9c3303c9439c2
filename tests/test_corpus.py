"""Parallel text as it lies on disk: every form in either direction, faults named by line, caching by content."""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import datasets
import huggingface_hub
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from nmt.data import corpus
from nmt.data import formats as row_reading
from nmt.data.cache import cached_dataset
from nmt.data.corpus import read_files, read_hub
from nmt.data.encoding import RATIO_FLOOR, filter_pairs
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError

TABLES = ("datasets", "pandas", "pyarrow")

# Text that a careless reader changes: separators that are no line ends, blanks, quotes, a blank side.
PAIRS = [
    ("A man sleeps .", "Ein Mann schläft ."),
    (" leading and trailing  ", "führend und\u00a0folgend "),
    ("line\u2028separator and\u0085next", "a\x0bvertical\x0cfeed\x1cend"),
    ('say "yes", now', "sag „ja“, jetzt"),
    ("", "nichts davor"),
    ("the last one", "   "),
]
ROWS = [{"en": en, "de": de} for en, de in PAIRS]


def write_jsonl(folder, split, rows=ROWS):
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_translation_jsonl(folder, split):
    lines = [json.dumps({"id": 1, "translation": row}, ensure_ascii=False) for row in ROWS]
    (folder / f"{split}.jsonl").write_bytes(("\n".join(lines) + "\n").encode())


def write_tsv(folder, split):
    (folder / f"{split}.tsv").write_bytes("".join(f"{en}\t{de}\n" for en, de in PAIRS).encode())


def write_tsv_with_header(folder, split):
    (folder / f"{split}.tsv").write_bytes(
        "".join(f"{de}\t{en}\n" for en, de in [("en", "de"), *PAIRS]).encode()
    )


def write_csv(folder, split):
    with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["id", "de", "en"])
        writer.writerows([place, de, en] for place, (en, de) in enumerate(PAIRS))


def write_parquet(folder, split):
    pq.write_table(pa.Table.from_pylist(ROWS), folder / f"{split}.parquet")


def write_translation_parquet(folder, split):
    pq.write_table(pa.Table.from_pylist([{"translation": row} for row in ROWS]), folder / f"{split}.parquet")


def write_hub_shards(folder, split):
    (folder / "data").mkdir(exist_ok=True)
    for number in range(2):
        table = pa.Table.from_pylist(ROWS[3 * number : 3 * number + 3])
        pq.write_table(table, folder / "data" / f"{split}-0000{number}-of-00002-1f2e.parquet")


def write_a_shard_a_row(folder, split):
    """Twelve shards with bare numbers, which do not sort as text."""
    for number in range(12):
        rows = ROWS[number : number + 1] if number < 5 else ROWS[5:] if number == 11 else []
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}-{number}-of-12.jsonl").write_text(text)


def write_plain(folder, split):
    for column, lang in enumerate(("en", "de")):
        text = "".join(f"{pair[column]}\n" for pair in PAIRS)
        (folder / f"{split}.{lang}").write_bytes(text.encode())


def write_plain_crlf_without_last_end(folder, split):
    for column, lang in enumerate(("en", "de")):
        text = "\r\n".join(pair[column] for pair in PAIRS)
        (folder / f"{split}.{lang}").write_bytes(codecs.BOM_UTF8 + text.encode())


def write_json_array(folder, split):
    (folder / f"{split}.json").write_bytes(codecs.BOM_UTF8 + json.dumps(ROWS, indent=2).encode())


def write_json_lines(folder, split):
    write_jsonl(folder, split)
    (folder / f"{split}.jsonl").rename(folder / f"{split}.json")


def write_pandas_tsv(folder, split):
    pandas.DataFrame(ROWS).to_csv(folder / f"{split}.tsv", sep="\t", index=False)


def write_quoted_tsv(folder, split):
    """All cells but numbers in quotes, as R writes them."""
    table = pandas.DataFrame([{"id": place} | row for place, row in enumerate(ROWS)])
    table.to_csv(folder / f"{split}.tsv", sep="\t", index=False, quoting=csv.QUOTE_NONNUMERIC)


def write_semicolon_csv(folder, split):
    """As spreadsheets do where a comma is in numbers."""
    table = pandas.DataFrame(ROWS).rename(columns={"en": " EN", "de": "De "})
    table.to_csv(folder / f"{split}.csv", sep=";", index=False, encoding="utf-8-sig", lineterminator="\r\n")


def write_semicolon_csv_without_header(folder, split):
    pandas.DataFrame(ROWS).to_csv(folder / f"{split}.csv", sep=";", index=False, header=False)


def write_opus(folder, split):
    for lang in ("en", "de"):
        text = "".join(f"{row[lang]}\n" for row in ROWS)
        (folder / f"{split}.de-en.{lang}").write_bytes(text.encode())


PACKERS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def packed(write, end=".gz"):
    def write_packed(folder, split):
        before = set(folder.iterdir())
        write(folder, split)
        for file in set(folder.iterdir()) - before:
            file.with_name(f"{file.name}{end}").write_bytes(PACKERS[end](file.read_bytes()))
            file.unlink()

    write_packed.__name__ = f"{write.__name__}_{end[1:]}"
    return write_packed


PACKABLE = [
    write_jsonl,
    write_tsv,
    write_csv,
    write_plain,
    write_json_array,
    write_pandas_tsv,
    write_semicolon_csv,
]
UNPACKABLE = [
    *(write_translation_jsonl, write_translation_parquet, write_parquet),
    *(write_tsv_with_header, write_quoted_tsv, write_semicolon_csv_without_header, write_json_lines),
    *(write_hub_shards, write_a_shard_a_row, write_plain_crlf_without_last_end, write_opus),
    *(packed(write_plain, ".xz"), packed(write_pandas_tsv, ".bz2"), packed(write_json_array, ".xz")),
]
WRITERS = [*PACKABLE, *(packed(write) for write in PACKABLE), *UNPACKABLE]


def read(folder, *, src="en", tgt="de", cache=None, **options):
    return read_files(folder, src_lang=src, tgt_lang=tgt, cache_dir=cache or folder / "cache", **options)


@pytest.mark.parametrize("direction", [("en", "de"), ("de", "en")])
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_every_form_gives_the_text_exactly_in_either_direction(tmp_path, write, direction):
    write(tmp_path, "train")
    write(tmp_path, "test")
    has_no_header = write.__name__ in ("write_tsv", "write_tsv_gz", "write_semicolon_csv_without_header")
    columns = ["en", "de"] if has_no_header else None
    splits = read(tmp_path, src=direction[0], tgt=direction[1], columns=columns)
    assert list(splits) == ["train", "test"]
    for rows in splits.values():
        assert rows.column_names == ["src", "tgt"]
        assert [(row[direction[0]], row[direction[1]]) for row in ROWS] == [
            (row["src"], row["tgt"]) for row in rows
        ]


def test_a_field_of_csv_may_be_long(tmp_path):
    (tmp_path / "train.csv").write_text(f"en,de\n{'a ' * 100_000},b\n", "utf-8")
    assert len(read(tmp_path)["train"][0]["src"]) > 131_072


@pytest.mark.parametrize("alias", ["val", "valid", "validation", "dev"])
def test_validation_goes_by_any_of_its_names(tmp_path, alias):
    write_jsonl(tmp_path, "train")
    write_jsonl(tmp_path, alias)
    assert list(read(tmp_path)) == ["train", "val"]


def test_only_the_splits_asked_for_are_read(tmp_path):
    write_jsonl(tmp_path, "test")
    assert list(read(tmp_path, splits=["test"])) == ["test"]  # a folder to evaluate on needs no train


def test_rows_are_mapped_from_the_cache_not_held_in_memory(tmp_path):
    write_jsonl(tmp_path, "train")
    rows = read(tmp_path, cache=tmp_path / "new" / "cache")["train"]
    [file] = rows.cache_files
    assert Path(file["filename"]).is_relative_to(tmp_path / "new" / "cache")


# Alignments.

ALIGNED = [("a b c", "x y", "0-0 1-1 2-1"), ("d", "z w", "0-0 0-1"), ("", "", "")]  # en, vi, en-vi links
FLIPPED = ["0-0 1-1 1-2", "0-0 1-0", ""]


def write_aligned_plain(folder):
    for column, name in enumerate(("train.en", "train.vi", "train.align")):
        (folder / name).write_text("".join(f"{row[column]}\n" for row in ALIGNED))


def write_aligned_jsonl(folder):
    rows = [{"vi": vi, "en": en, "alignment": links} for en, vi, links in ALIGNED]
    write_jsonl(folder, "train", rows)


def write_aligned_tsv(folder):
    (folder / "train.tsv").write_text(
        "".join(f"{'	'.join(row)}\n" for row in [("en", "vi", "alignment"), *ALIGNED])
    )


@pytest.mark.parametrize("write", [write_aligned_plain, write_aligned_jsonl, write_aligned_tsv])
def test_links_count_source_words_first(tmp_path, write):
    write(tmp_path)
    straight = read(tmp_path, src="en", tgt="vi")["train"]
    assert straight.column_names == ["src", "tgt", "alignment"]
    assert list(straight["alignment"]) == [links for _, _, links in ALIGNED]
    assert list(read(tmp_path, src="vi", tgt="en")["train"]["alignment"]) == FLIPPED


def test_columns_say_which_language_the_links_count_first(tmp_path):
    for name, text in (("train.grc", "a b\n"), ("train.en", "x\n"), ("train.align", "1-0\n")):
        (tmp_path / name).write_text(text)
    options = {"columns": ["grc", "en"]}
    assert list(read(tmp_path, src="grc", tgt="en", **options)["train"]["alignment"]) == ["1-0"]
    assert list(read(tmp_path, src="en", tgt="grc", **options)["train"]["alignment"]) == ["0-1"]
    with pytest.raises(UserError, match=r"line 1: alignment link 1-0 is out of range: .*data.columns"):
        read(tmp_path, src="en", tgt="grc")


# What is refused. Each case: the files (a str is UTF-8 text), then what the message must hold.

GOOD = '{"en": "a", "de": "b"}\n'
NOT_UTF8 = [pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]  # from 0 to 2: these two bytes
NOT_TEXT = io.BytesIO()
pq.write_table(
    pa.table({"en": pa.Array.from_buffers(pa.string(), 1, [None, *NOT_UTF8]), "de": ["b"]}), NOT_TEXT
)
REFUSED = {
    "nothing there": ({"notes.md": "hello"}, r"has no train as .jsonl, .*or as .en with .de.*it holds notes.md"),
    "empty folder": ({}, r"it is empty"),
    "no train": ({"test.jsonl": GOOD}, r"has no train as .jsonl.*it holds test.jsonl"),
    "one side": ({"train.en": "a\n"}, r"has no train.de; it holds train.en: set data.src_lang"),
    "other language": ({"train.de.gz": "a\n", "train.fr": "b\n"}, r"has no train.en; it holds train.de.gz, train.fr"),
    "two forms": ({"train.jsonl": GOOD, "train.tsv": "a\tb\n"}, r"both train.jsonl and train.tsv for the train"),
    "gz and not": ({"train.jsonl": GOOD, "train.jsonl.gz": GOOD}, r"both train.jsonl and train.jsonl.gz"),
    "side gz and not": ({"train.en": "a", "train.en.gz": "a", "train.de": "b"}, r"both train.en and train.en.gz"),
    "two names": ({"train.jsonl": GOOD, "val.jsonl": GOOD, "dev.jsonl": GOOD}, r"both val.jsonl and dev.jsonl"),
    "empty json": ({"train.jsonl": ""}, r"train.jsonl: the split has no rows"),
    "empty csv": ({"train.csv": "en,de\n"}, r"train.csv: the split has no rows"),
    "empty side": ({"train.en": "", "train.de": "a\n"}, r"train.en has 0, .*train.de has 1"),
    "folder for file": ({"train.jsonl": None}, r"train.jsonl: cannot read it .Is a directory"),
    "counts": ({"train.en": "a\nb\n", "train.de": "a\nb\nc"}, r"train.en has 2, .*train.de has 3; line i"),
    "align count": ({"train.en": "a\n", "train.de": "a\n", "train.align": "0-0\n\n"}, r"train.align has 2"),
    "latin-1": ({"train.en": b"a\ncaf\xe9 b\n", "train.de": "a\nb\n"}, r"en, line 2: not UTF-8 .*0xe9 at position 4"),
    "utf-16 no mark": ({"train.jsonl": GOOD.encode("utf-16-le")}, r"lines 1, 2: a NUL byte; it must be UTF-8"),
    "nul": ({"train.en": "a\nb\0c\n", "train.de": "a\nb\n"}, r"train.en, line 2: a NUL byte"),
    "bad json": ({"train.jsonl": GOOD + '{"en": "a", \n'}, r"train.jsonl, line 2: not JSON \(.* column \d+\)"),
    "json list": ({"train.jsonl": '["a", "b"]\n'}, r"line 1: not an object with text in each language"),
    "missing key": ({"train.jsonl": GOOD + '{"en": "a", "fr": "b"}\n'}, r'line 2: no "de"; .* are en, fr: set data'),
    "missing inside": ({"train.jsonl": '{"translation": {"en": "a", "fr": ""}}\n'}, r'no "de"; .* are en, fr'),
    "number": ({"train.jsonl": '{"en": 5, "de": "b"}\n'}, r'line 1: "en" is 5, not text'),
    "nul escape": ({"train.jsonl": r'{"en": "a\u0000", "de": "b"}' + "\n"}, r'line 1: "en" holds a NUL'),
    "surrogate": ({"train.jsonl": r'{"en": "a\ud800", "de": "b"}' + "\n"}, r'line 1: "en" holds .* half a surrogate'),
    "no header": ({"train.tsv": "a\tb\n"}, r"1: no header .*a, b: .*=\[de:NAME,en:NAME\].*=\[de,en\]"),
    "three columns": ({"train.tsv": "en\tde\na\tb\na\tb\tc\n"}, r"line 3: expected 2 columns \(en, de\), got 3"),
    "csv header": ({"train.csv": "a,b\nc,d\n"}, r"line 1: no header that names en and de"),
    "csv twice": ({"train.csv": "en,de,en\n"}, r"line 1: a column is named twice: en,de,en"),
    "csv quote": ({"train.csv": 'en,de\n"a,b\n'}, r"line \d: not CSV"),
    "csv after quote": ({"train.csv": 'en,de\n"a"b,c\n'}, r"line 2: not CSV"),
    "no gzip": ({"train.jsonl.gz": b"plain"}, r"train.jsonl.gz is broken, cut off or no .gz file"),
    "cut gzip": ({"train.jsonl.gz": gzip.compress(GOOD.encode() * 99)[:-12]}, r"broken, cut off or no .gz"),
    "bad parquet": ({"train.parquet": b"PAR1 nonsense"}, r"train.parquet is broken or no Parquet"),
    "cut parquet": ({"train.parquet": NOT_TEXT.getvalue()[:300]}, r"train.parquet is broken or no Parquet"),
    "parquet bytes": ({"train.parquet": NOT_TEXT.getvalue()}, r"train.parquet is broken.*utf-8"),
    "two sets of shards": (
        {"train-00000-of-00002.jsonl": GOOD, "train-00001-of-00003.jsonl": GOOD},
        r"should hold 2 shards of train, but has train-00000-of-00002.jsonl, train-00001-of-00003.jsonl",
    ),
    "shard missing": ({"train-00001-of-00002.parquet": b""}, r"should hold 2 shards of train, but has train-00001"),
    "links": ({"train.en": "a\n", "train.de": "b\n", "train.align": "0:0\n"}, r"align, line 1: .*'0:0' is not .* i-j"),
    "far link": ({"train.en": "a\n", "train.de": "b c\n", "train.align": "2-0\n"}, r"link 2-0 .*1 words and de 2"),
    "link of 5000 digits": ({"train.jsonl": GOOD[:-2] + ', "alignment": "0-' + "9" * 5000 + '"}\n'}, r"link '0-9999"),
    "link number": ({"train.jsonl": '{"en": "a", "de": "b", "alignment": 3}\n'}, r'"alignment" is 3, not text'),
    "some links": (
        {"train.jsonl": '{"en": "a", "de": "b", "alignment": "0-0"}\n' + GOOD},
        r"line 2: some rows have an alignment and others have none",
    ),
}  # fmt: skip


def lay(folder, files):
    for name, content in files.items():
        if content is None:
            (folder / name).mkdir()
            continue
        content = content.encode() if isinstance(content, str) else content
        if (
            name.endswith(".gz")
            and files is not REFUSED["no gzip"][0]
            and not content.startswith(b"\x1f\x8b")
        ):
            content = gzip.compress(content)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_unsound_is_refused_by_name_and_line(tmp_path, case):
    files, message = REFUSED[case]
    (tmp_path / "data").mkdir()
    lay(tmp_path / "data", files)
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path / "data", cache=tmp_path / "cache")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert not list(tmp_path.rglob("*.arrow"))  # nothing half-written


@pytest.mark.parametrize("name", ["train.yaml", "train.tsv.lz4", "train.en.txt", "train-00000-of-00001.txt"])
def test_files_in_another_format_are_named(tmp_path, name):
    (tmp_path / name).write_text("a")
    with pytest.raises(UserError, match=rf"has no train as .jsonl, .*; it holds {name}: set data.path"):
        read(tmp_path)


def test_a_number_or_null_in_parquet_is_named_by_its_row(tmp_path):
    pq.write_table(pa.table({"en": ["a", None], "de": ["b", "c"]}), tmp_path / "train.parquet")
    with pytest.raises(UserError, match=r'train.parquet, row 2: "en" is None'):
        read(tmp_path)
    pq.write_table(pa.table({"en": [1], "de": ["b"]}), tmp_path / "train.parquet")
    with pytest.raises(UserError, match=r'train.parquet, row 1: "en" is 1, not text'):
        read(tmp_path)
    pq.write_table(pa.table({"fr": ["a"], "vi": ["b"]}), tmp_path / "train.parquet")
    with pytest.raises(UserError, match=r'train.parquet: no "en"; the names there are fr, vi'):
        read(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"src": "en", "tgt": "en"}, r"both en"),
        ({"columns": ["en", "fr"]}, r"data.columns=\[en,fr\] must hold en and de"),
        ({"columns": ["en", "de", "de"]}, r"once each"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, options, message):
    (tmp_path / "train.tsv").write_text("en\tde\na\tb\n")
    with pytest.raises(UserError, match=message):
        read(tmp_path, **options)


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"nowhere is no folder: set data.path"):
        read(tmp_path / "nowhere", cache=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file is no folder: set data.path"):
        read(tmp_path / "file", cache=tmp_path)


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    write_jsonl(tmp_path, "train")
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(UserError, match=r"cache: cannot write the cache .*set data.cache_dir"):
        read(tmp_path)


def test_translation_needs_no_tables():
    """Translation reads lines and makes batches, and starts faster without pandas and Arrow."""
    modules = ", ".join(f"nmt.data.{name}" for name in ("find", "tokenizer", "segmentation", "batching"))
    program = f"import sys, {modules}; sys.exit(any(name in sys.modules for name in {TABLES}))"
    subprocess.run([sys.executable, "-c", program], check=True)


# Caching.


@pytest.fixture
def parses(monkeypatch):
    """The file names that have been parsed, in order."""
    names = []
    parse = row_reading.read_rows

    def counted(shards, languages, **options):
        names.append(shards[0].paths[0].name)
        return parse(shards, languages, **options)

    monkeypatch.setattr(row_reading, "read_rows", counted)
    return names


def test_the_same_content_is_parsed_once_wherever_it_lies(tmp_path, parses):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_jsonl(tmp_path / folder, "train")
    first = read(tmp_path / "a", cache=tmp_path / "cache")["train"]
    assert parses == ["train.jsonl"]
    second = read(tmp_path / "b", cache=tmp_path / "cache")["train"]
    assert parses == ["train.jsonl"]
    assert first._fingerprint == second._fingerprint
    assert list(first) == list(second)


@pytest.mark.parametrize("change", ["content", "same size and time", "direction", "reader"])
def test_what_changes_the_rows_is_parsed_anew(tmp_path, parses, change, monkeypatch):
    write_jsonl(tmp_path, "train", [{"en": "a", "de": "b"}])
    first = read(tmp_path)["train"]
    options = {}
    if change == "content":
        write_jsonl(tmp_path, "train", [{"en": "a", "de": "b"}] * 2)
    elif change == "same size and time":
        before = (tmp_path / "train.jsonl").stat()
        write_jsonl(tmp_path, "train", [{"en": "c", "de": "b"}])
        os.utime(tmp_path / "train.jsonl", ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "direction":
        options = {"src": "de", "tgt": "en"}
    else:
        monkeypatch.setattr(corpus, "_READER_VERSION", -1)
    second = read(tmp_path, **options)["train"]
    assert len(parses) == 2
    assert first._fingerprint != second._fingerprint
    assert first[0] == {"src": "a", "tgt": "b"}  # what was read before stays as it was


def test_line_ends_inside_quotes_are_kept(tmp_path):
    rows = [{"en": "a\r\nb", "de": "c\nd"}, {"en": "e\rf", "de": ' "g"\r\n\r\n'}]
    with (tmp_path / "train.csv").open("w", encoding="utf-8-sig", newline="") as handle:
        writer = csv.DictWriter(handle, ["en", "de"])
        writer.writeheader()
        writer.writerows(rows)
    found = read(tmp_path)["train"]
    assert [{"en": row["src"], "de": row["tgt"]} for row in found] == rows


def test_columns_are_part_of_the_content(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tb\n")
    assert read(tmp_path, columns=["en", "de"])["train"][0] == {"src": "a", "tgt": "b"}
    assert read(tmp_path, columns=["de", "en"])["train"][0] == {"src": "b", "tgt": "a"}


def shout(rows):
    return {"src": [text.upper() for text in rows["src"]]}


def test_what_is_computed_from_cached_rows_is_found_again(tmp_path):
    write_jsonl(tmp_path, "train")
    first = read(tmp_path)["train"].map(shout, batched=True)
    again = read(tmp_path)["train"].map(shout, batched=True)
    assert again.cache_files == first.cache_files != []


def test_a_cache_is_written_whole_or_not_at_all(tmp_path):
    def cut_off():
        yield from [("a", "b")] * 5_000
        raise KeyboardInterrupt

    keywords = {"key": "0" * 64, "split": "train", "cache_dir": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        cached_dataset(cut_off, **keywords)
    pairs = [(str(number), str(-number)) for number in range(25_001)]
    found = cached_dataset(lambda: pairs, **keywords)
    assert list(zip(found["src"][:], found["tgt"][:], strict=True)) == pairs


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("*.arrow", lambda content: content.replace(b"mew", b"m\xffw")),
        ("*.arrow", lambda content: content[: len(content) // 2]),
        ("dataset_info.json", lambda content: b"{"),
    ],
    ids=["not UTF-8", "cut", "no JSON"],
)
def test_a_damaged_cache_is_named_and_what_to_do(tmp_path, name, damage):
    keywords = {"key": "0" * 64, "split": "train", "cache_dir": tmp_path}
    cached_dataset(lambda: [("cats mew", "mèo kêu")], **keywords)
    [file] = tmp_path.rglob(name)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UserError, match="broken") as refusal:
        cached_dataset(lambda: [], **keywords)
    assert str(tmp_path) in str(refusal.value)
    assert "remove this folder" in str(refusal.value)


# The Hub, without a network.


def hub(monkeypatch, splits):
    """The calls of a stand-in for the Hub's loader, and if it was offline at each."""
    calls = []

    def load_dataset(name, config, cache_dir):
        is_offline = datasets.config.HF_HUB_OFFLINE and huggingface_hub.constants.HF_HUB_OFFLINE
        calls.append((name, config, cache_dir, is_offline))
        if isinstance(splits, Exception):
            raise splits
        return DatasetDict(splits)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(corpus, "_reaches_hub", lambda: True)
    return calls


def test_without_a_network_the_hub_is_not_asked_again_and_again(monkeypatch, tmp_path):
    calls = hub(monkeypatch, ConnectionError("offline"))
    for module in (datasets.config, huggingface_hub.constants):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(corpus, "_reaches_hub", lambda: False)
    with pytest.raises(UserError, match=r"set data\.path=DIR"):
        read_from_hub(tmp_path)
    assert [is_offline for *_, is_offline in calls] == [True]
    assert not huggingface_hub.constants.HF_HUB_OFFLINE
    assert not datasets.config.HF_HUB_OFFLINE


def read_from_hub(tmp_path, **changes):
    options = {"path": None, "config": None, "src_lang": "en", "tgt_lang": "de", "cache_dir": tmp_path}
    return read_hub("someone/something", **(options | changes))


def hub_rows(nested):
    rows = [{"id": "x", "translation": row} if nested else row for row in ROWS]
    features = None
    if nested:
        translation = datasets.Translation(languages=["de", "en"])
        features = datasets.Features({"id": datasets.Value("string"), "translation": translation})
    return Dataset.from_list(rows, features=features)


@pytest.mark.parametrize("direction", [("en", "de"), ("de", "en")])
@pytest.mark.parametrize("nested", [True, False])
def test_hub_rows_are_named_by_language_or_nested(tmp_path, monkeypatch, nested, direction):
    calls = hub(monkeypatch, {"train": hub_rows(nested), "validation": hub_rows(nested)})
    src, tgt = direction
    splits = read_from_hub(tmp_path, src_lang=src, tgt_lang=tgt, config="raw")
    assert calls == [("someone/something", "raw", str(tmp_path), False)]
    assert list(splits) == ["train", "val"]
    assert list(splits["val"]) == [{"src": row[src], "tgt": row[tgt]} for row in ROWS]


@pytest.mark.parametrize("nested", [True, False])
def test_a_language_that_the_hub_s_rows_lack_is_named(tmp_path, monkeypatch, nested):
    hub(monkeypatch, {"train": hub_rows(nested)})
    with pytest.raises(
        UserError,
        match=r'something, split train(, rows 1, 2, 3, 4, 5, 6)?: no "fr"; the names there are (de, en|en, de): set',
    ):
        read_from_hub(tmp_path, tgt_lang="fr")


@pytest.mark.parametrize(
    "fault", [ConnectionError("no network\nat all"), ValueError("no such configuration")]
)
def test_without_the_hub_the_message_names_the_way_round(tmp_path, monkeypatch, fault):
    hub(monkeypatch, fault)
    with pytest.raises(UserError, match=r"cannot load someone/something .*no .*set data.path=DIR"):
        read_from_hub(tmp_path)


def test_other_faults_of_the_hub_s_data_are_named(tmp_path, monkeypatch):
    hub(monkeypatch, {"validation": hub_rows(False)})
    with pytest.raises(UserError, match=r"has no train split; its splits are validation"):
        read_from_hub(tmp_path)
    hub(monkeypatch, {"train": Dataset.from_list([])})
    with pytest.raises(UserError, match=r"something, split train has no rows"):
        read_from_hub(tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"en": "a", "de": None}, r'row 2: "de" is None'),
        ({"en": "a\0", "de": "b"}, r'row 2: "en" holds a NUL'),
        ({"translation": {"en": "a"}}, r'row 2: "de" is None'),
        ({"translation": None}, r"row 2: not an object with text"),
        ({"en": "a", "de": "b", "alignment": "0-1"}, r"row 2: alignment link 0-1 is out of range"),
    ],
)
def test_the_hub_s_rows_are_looked_at_as_those_of_files_are(tmp_path, monkeypatch, row, message):
    good: dict = {"en": "a", "de": "b"}
    good = {"translation": good} if "translation" in row else good | {"alignment": "0-0"}
    hub(monkeypatch, {"train": Dataset.from_list([good, row])})
    with pytest.raises(UserError, match=f"someone/something, split train, {message}"):
        read_from_hub(tmp_path)


@pytest.mark.parametrize("nested", [True, False])
def test_alignments_of_the_hub_are_kept(tmp_path, monkeypatch, nested):
    rows = [{"en": en, "vi": vi} for en, vi, _ in ALIGNED]
    rows = [{"translation": row} if nested else row for row in rows]
    links = [links for *_, links in ALIGNED]
    aligned = [row | {"alignment": each} for row, each in zip(rows, links, strict=True)]
    hub(monkeypatch, {"train": Dataset.from_list(aligned)})
    splits = read_from_hub(tmp_path, src_lang="en", tgt_lang="vi")
    assert list(splits["train"]["alignment"]) == links
    splits = read_from_hub(tmp_path, src_lang="vi", tgt_lang="en")
    assert list(splits["train"]["alignment"]) == FLIPPED


def test_a_local_copy_stands_in_for_the_hub(tmp_path, monkeypatch):
    calls = hub(monkeypatch, ConnectionError())
    write_jsonl(tmp_path, "train")
    assert len(read_from_hub(tmp_path, path=tmp_path)["train"]) == len(PAIRS)
    assert calls == []


# The filter of training pairs.


def of_lengths(pairs):
    return Dataset.from_dict(
        {
            "index": list(range(len(pairs))),
            "src_ids": [[5] * (src - 1) + [3] for src, _ in pairs],
            "tgt_ids": [[5] * (tgt - 1) + [3] for _, tgt in pairs],
        }
    )


def test_the_filter_counts_each_pair_under_its_first_reason():
    pairs = [
        (5, 5),
        (1, 5),
        (5, 1),
        (1, 99),
        (11, 10),
        (10, 10),
        (10, 3),
        (9, 3),
        (2, RATIO_FLOOR),
        (2, RATIO_FLOOR + 1),
    ]
    (kept, *lengths), counts = filter_pairs(of_lengths(pairs), max_length=10, max_ratio=3.0)
    assert counts == {"kept": 4, "empty": 3, "too_long": 1, "ratio": 2}
    assert list(kept["index"]) == [0, 5, 7, 8]
    assert [side.tolist() for side in lengths] == [[5, 10, 9, 2], [5, 10, 3, RATIO_FLOOR]]


def test_the_filter_agrees_with_a_loop():
    chance = np.random.default_rng(0)
    pairs = chance.integers(1, 40, size=(3000, 2)).tolist()
    for rows in (
        of_lengths(pairs),
        of_lengths(pairs).shuffle(seed=1),
        of_lengths(pairs).select(range(100, 900)),
    ):
        expected = []
        for row in rows:
            a, b = sorted((len(row["src_ids"]), len(row["tgt_ids"])))
            if a > 1 and b <= 30 and (b <= RATIO_FLOOR or b / a <= 2.5):
                expected.append(row["index"])
        (kept, *lengths), counts = filter_pairs(rows, max_length=30, max_ratio=2.5)
        assert list(kept["index"]) == expected
        assert sum(counts.values()) == len(rows)
        assert counts["kept"] == len(expected)
        assert [side.tolist() for side in lengths] == [
            [len(row) for row in kept[name]] for name in ("src_ids", "tgt_ids")
        ]


def test_the_filter_keeps_a_pair_of_exactly_the_ratio():
    assert 4.1 * 30 < 123  # in binary fractions
    _, counts = filter_pairs(of_lengths([(123, 30), (124, 30)]), max_length=200, max_ratio=4.1)
    assert (counts["kept"], counts["ratio"]) == (1, 1)


def test_the_filter_says_why_nothing_is_left():
    with pytest.raises(
        UserError, match=r"left of 3 \(1 empty, 2 too long, 0 by ratio\): raise data.max_length=4"
    ):
        filter_pairs(of_lengths([(5, 5), (1, 2), (9, 9)]), max_length=4, max_ratio=2.0)


# Real text.

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"
CORPORA = [
    ("multi30k", "de", "en", None, {"train": 29_000, "val": 1_014, "test": 1_000}),
    ("tatoeba_en_fr", "fr", "en", ["en", "fr"], {"train": 162_054, "val": 1_500, "test": 2_000}),
    ("evbnews_en_vi", "en", "vi", None, {"train": 42_367, "val": 934, "test": 1_535}),
    ("europarl_en_fr", "en", "fr", None, {"train": 19_965, "test": 3_003}),
]


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "src", "tgt", "columns", "counts"), CORPORA, ids=[row[0] for row in CORPORA]
)
def test_real_corpora_are_read_whole(tmp_path, name, src, tgt, columns, counts):
    folder = REAL / name
    if not folder.is_dir():
        pytest.skip(f"no {name} beside the project")
    splits = read(folder, src=src, tgt=tgt, columns=columns, cache=tmp_path)
    assert {split: len(rows) for split, rows in splits.items()} == counts
    if name == "multi30k":
        first = json.loads((folder / "test.jsonl").read_text(encoding="utf-8").split("\n")[0])
    elif columns:
        cells = (folder / "test.tsv").read_text(encoding="utf-8").split("\n")[0].split("\t")
        first = dict(zip(columns, cells, strict=True))
    else:
        first = {
            lang: (folder / f"test.{lang}").read_text(encoding="utf-8").split("\n")[0] for lang in (src, tgt)
        }
    assert splits["test"][0] == {"src": first[src], "tgt": first[tgt]}


STRANGE = [
    "שלום \u202eעולם",  # right to left, with an override
    "e\u0301" * 3 + "\u0301" * 50,  # combining marks
    "\x01\x1b[2J\x7f \x0b\x0c\x1c\x85",
    "a\u2028b\u2029c",
    "👩\u200d👩\u200d👧 \ufeff\u00ad\u200b",
    "x" * 1_000_000,
    " ",
]


def test_strange_text_is_read_as_it_is(tmp_path):
    """The tokenizer takes it too, and gives each line its end of sentence."""
    (tmp_path / "data").mkdir()
    lay(
        tmp_path / "data",
        {f"train.{lang}": "".join(f"{line}\n" for line in STRANGE) for lang in ("en", "vi")},
    )
    rows = read_files(tmp_path / "data", src_lang="en", tgt_lang="vi", cache_dir=tmp_path, splits=["train"])
    assert list(rows["train"]["src"]) == list(rows["train"]["tgt"]) == STRANGE
    tokenizer = Tokenizer.train(
        STRANGE,
        STRANGE,
        model_type="bpe",
        joint=True,
        vocab_size=60,
        character_coverage=1.0,
    )
    assert all(ids[-1] == tokenizer.eos_id for ids in tokenizer.encode_source(STRANGE))
    assert tokenizer.decode(tokenizer.encode_target(STRANGE[:1])) == STRANGE[:1]
