"""Corpora as other programs write and name them: dialects of tables, names of files, rows that are bad."""

import gzip
import json
import logging
import os
import subprocess
import sys
import time
import tracemalloc

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nmt.data.corpus import read_files
from nmt.data.find import Languages, find, missing_split_error
from nmt.data.formats import located_rows, read_rows
from nmt.errors import UserError
from nmt.lines import LONGEST_LINE, read_lines
from tests.small import lay


def read(folder, *, src="en", tgt="fr", split="train", columns=None, skip_bad=False):
    """The rows of a split as they are read, without a cache."""
    languages = Languages(src, tgt, columns and tuple(columns))
    files = find(folder, split, languages)
    if files is None:
        raise missing_split_error(folder, split, languages)
    return list(read_rows(files.shards, languages, skip_bad=skip_bad))


# Quotes in a .tsv.

PLAIN = [
    [('He said "yes".', "Il a dit « oui »."), ('"Yes"', '"Oui"')],
    [('"Yes," he said.', "« Oui », dit-il."), ('a ""doubled"" one', "b")],
    [('"Yes."', "« Oui. »"), ("no quotes", "rien")],
    [('"a dialogue that goes on', "« un dialogue"), ('to its end"', "jusqu'à sa fin »")],
    [('a screen of 5"', "un écran"), ('"', '""')],
    [('"one"two"', "un"), ("x", '""deux""')],
]
QUOTED = [
    [('He said "yes".', 'Il a dit "oui".'), ("no quotes", "rien")],
    [('"Yes"', "« Oui »"), ('"', '""')],
    [("a\ttab", "b"), ("two\nlines", "deux\r\nlignes"), ('5" and "x"\n"y"', "c")],
    [("only a\ttab", "une")],
]


@pytest.mark.parametrize("pairs", PLAIN)
def test_quotes_of_a_plain_tsv_are_text(tmp_path, pairs):
    lay(tmp_path, {"train.tsv": "".join(f"{en}\t{fr}\n" for en, fr in pairs)})
    assert read(tmp_path, columns=["en", "fr"]) == pairs


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [0, 1])  # where needed, everywhere
@pytest.mark.parametrize("pairs", QUOTED)
def test_quotes_of_a_table_are_not_text(tmp_path, pairs, quoting, end):
    table = pandas.DataFrame(pairs, columns=["en", "fr"])
    table.to_csv(tmp_path / "train.tsv", sep="\t", index=False, quoting=quoting, lineterminator=end)
    assert read(tmp_path) == pairs


# Columns with other names.

OTHER_NAMES = {
    "train.csv": "id,english,french\n1,a,b\n",
    "train.tsv": "\ufeffEnglish\tFrench \r\na\tb\r\n",
    "train.jsonl": '{"english": "a", "french": "b"}\n',
    "train.json": '[{"translation": {"english": "a", "french": "b"}}]',
}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_columns_may_have_other_names_than_the_languages(tmp_path, name):
    lay(tmp_path, {name: OTHER_NAMES[name]})
    columns = ["en:english", "fr:french"]
    assert read(tmp_path, columns=columns) == [("a", "b")]
    assert read(tmp_path, src="fr", tgt="en", columns=columns) == [("b", "a")]
    with pytest.raises(UserError, match=r"(?i)english, french.*data.columns=\[en:NAME,fr:NAME\]"):
        read(tmp_path)
    with pytest.raises(UserError, match=r"(?i)englisch.*english"):
        read(tmp_path, columns=["en:englisch", "fr:french"])


def test_columns_of_parquet_may_have_other_names(tmp_path):
    pq.write_table(pa.table({"source": ["a"], "n": [1], "target": ["b"]}), tmp_path / "train.parquet")
    assert read(tmp_path, columns=["en:source", "fr:target"]) == [("a", "b")]
    with pytest.raises(
        UserError, match=r'no "en"; the names there are source, n, target: .*=\[en:NAME,fr:NAME\]'
    ):
        read(tmp_path)


def test_a_header_that_is_read_as_a_pair_is_noticed(tmp_path, caplog):
    lay(tmp_path, {"train.csv": "english,french\na b.,c d.\n"})
    assert len(read(tmp_path, columns=["en", "fr"])) == 2
    assert "line 1: english and french are read as a pair" in caplog.text
    assert "data.columns=[en:NAME,fr:NAME]" in caplog.text


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_of_a_csv_without_a_header_fits_most_lines(tmp_path, separator):
    pairs = [("one, two; three", "un"), ("a", "b, c"), ("d; e", "f"), ("g", "h")]
    table = pandas.DataFrame(pairs)
    table.to_csv(tmp_path / "train.csv", sep=separator, index=False, header=False)
    assert read(tmp_path, columns=["en", "fr"]) == pairs


# Names of files.

PAIR = ("a\n", "b\n")
NAMES = {  # the split, and the files of which it is the first pair
    "languages": ("train", ["train.en-fr.en", "train.en-fr.fr"]),
    "languages in reverse": ("val", ["dev_fr-en.en", "dev_fr-en.fr"]),
    "a table with languages": ("train", ["train.en-fr.tsv"]),
    "another name": ("train", ["corpus.en", "corpus.fr", "val.en", "val.fr"]),
    "OPUS": (
        "train",
        ["OpenSubtitles.en-fr.en", "OpenSubtitles.en-fr.fr", "LICENSE", "OpenSubtitles.en-fr.ids"],
    ),
    "Multi30k": (
        "test",
        [f"test_{name}.{lang}" for name in ("2016_flickr", "2017_flickr") for lang in ("en", "fr")],
    ),
    "a test set of one side": ("test", ["test_2018.en", "test_2019.en", "test_2019.fr"]),
    "a cleaned text": ("train", ["train.clean.en", "train.clean.fr", "other.en", "other.fr"]),
    "a year": ("test", ["test2016.csv"]),
}


@pytest.mark.parametrize("case", NAMES)
def test_files_go_by_the_names_that_others_give_them(tmp_path, case, caplog):
    caplog.set_level(logging.INFO)
    split, names = NAMES[case]
    shown = [name for name in names if "test_2018" not in name]
    for name in names:
        side = PAIR[name.endswith(".fr")] if name.endswith((".en", ".fr")) else "en\tfr\na\tb\n"
        mark = "first" if name.startswith(shown[0].rpartition(".")[0]) else "other"
        lay(tmp_path, {name: side.replace("a", f"a {mark}")})
    assert read(tmp_path, split=split)[0] == ("a first", "b")


@pytest.mark.parametrize("name", ["latest_corpus", "medieval", "devices", "Contest-2"])
def test_held_out_names_count_as_words(tmp_path, name):
    lay(tmp_path, {f"{name}.en": "a\n", f"{name}.fr": "b\n"})
    lay(tmp_path, {f"newstest2014-deen.{side}": "c\n" for side in ("en", "fr")})
    assert read(tmp_path) == [("a", "b")]


REFUSED = {
    "two other names": (["a.en", "a.fr", "b.en", "b.fr"], r"has both a.en and b.en for the train split"),
    "test sets only": (["devtest.en", "devtest.fr", "tst2013.en", "tst2013.fr"], r"has no train as"),
    "both names": (["train.en", "train.en-fr.en", "train.fr"], r"has both train.en and train.en-fr.en"),
    "packed twice": (["train.en", "train.en.xz", "train.fr"], r"has both train.en and train.en.xz"),
    "zst": (["train.en.zst", "train.fr.zst"], r"train.en.zst .* zstd -d train.en.zst$"),
    "zst of OPUS": (["corpus.en-fr.tsv.zst"], r"zstd -d corpus.en-fr.tsv.zst$"),
    "archive": (["en-fr.txt.zip"], r"unzip en-fr.txt.zip$"),
    "tar": (["en-fr.tgz"], r"tar xf en-fr.tgz$"),
    "packed tar": (["all.tar.gz"], r"tar xf all.tar.gz$"),
    "tmx": (["en-fr.tmx"], r"en-fr.tmx .* python .*iterparse\(sys.argv\[1\]\).* en-fr.tmx > train.tsv$"),
    "packed tmx": (["en-fr.tmx.gz"], r"gzip -d en-fr.tmx.gz$"),
    "other endings": (
        ["Train.EN", "train.fr.txt"],
        r"or rename the files, such as to train.en and train.fr$",
    ),
    "sheet": (
        ["Train.xlsx"],
        r"read_excel\(sys.argv\[1\]\).to_csv\('train.csv', index=False\)\" Train.xlsx$",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_are_not_read_are_named_with_what_to_do(tmp_path, case):
    names, message = REFUSED[case]
    lay(tmp_path, dict.fromkeys(names, "x\n"))
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path)
    assert "\n" not in str(error.value)


def test_a_held_out_set_to_be_converted_is_named_too(tmp_path):
    lay(tmp_path, {"train.en": "a\n", "train.fr": "b\n", "test.fr.sgm": "<seg>b</seg>", "notes.xlsx": ""})
    assert read(tmp_path) == [("a", "b")]
    with pytest.raises(UserError, match=r"test.fr.sgm .* > test.LANGUAGE"):
        read(tmp_path, split="test")


TMX = (
    '<?xml version="1.0"?><tmx version="1.4"><header/><body>'
    '<tu><tuv xml:lang="en"><seg>a <hi>small</hi>\n house &amp; x</seg></tuv><tuv xml:lang="fr"><seg>é</seg></tuv></tu>'
    "</body></tmx>"
)
XLIFF = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><file><body><trans-unit id="1">'
    "<source>a <g>small</g>\n house &amp; x</source><target>é</target><alt-trans><target>à</target></alt-trans>"
    "</trans-unit></body></file></xliff>"
)
SGM = '<doc>\n<seg id="1">one &amp; two</seg>\n<seg id="2"> three </seg>\n</doc>\n'


@pytest.mark.parametrize(
    ("name", "content", "made", "expected"),
    [
        ("train.tmx", TMX, "train.tsv", "a small house & x\té\n"),
        ("train l'été.tmx", TMX, "train.tsv", "a small house & x\té\n"),
        ("en-fr.xliff", XLIFF, "train.tsv", "a small house & x\té\n"),
        ("train.sgm", SGM, "train.LANGUAGE", "one & two\nthree\n"),
    ],
)
def test_the_command_of_a_message_converts(tmp_path, name, content, made, expected):
    lay(tmp_path, {name: content})
    with pytest.raises(UserError) as error:
        read(tmp_path)
    command = str(error.value).partition(" in its folder by ")[2].replace("python ", f"{sys.executable} ", 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / made).read_text("utf-8") == expected


# Bad rows.


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" if isinstance(row, dict) else f"{row}\n" for row in rows)


GOOD = {"en": "a", "fr": "b"}
BAD = {
    "jsonl": ({"train.jsonl": jsonl([GOOD, "x", GOOD, GOOD | {"fr": None}, GOOD])}, r"line 2: not JSON .*line 4: .fr"),
    "json": ({"train.json": json.dumps([GOOD, "x", GOOD, {}, GOOD])}, r"item 2: not an object.*item 4: no .en"),
    "tsv": ({"train.tsv": "en\tfr\na\tb\na\na\tb\na\tb\tc\na\tb\n"}, r"line 3: expected 2.*got 1; .*line 5: .*got 3"),
    "csv": ({"train.csv": 'en,fr\na,b\n"a"a,b\na,b\na\na,b\n'}, r"line 3: not CSV .*line 5: expected 2 columns"),
    "csv bytes": ({"train.csv": b"en,fr\na,b\n\xe9,b\na,b\n\na,b\n"}, r"line 3: not UTF-8.*line 5: expected 2 columns"),
    "csv, rows of lines": (
        {"train.csv": b'en,fr\na,b\n"x\n\xe9\ny",b\na,b\n"\0\nx",b\na,b\n'}, r"line 3: not UTF-8.*line 7: a NUL"
    ),
    "csv, a long row": (
        {"train.csv": f'en,fr\na,b\n"{"x" * LONGEST_LINE}",b\na,b\n,,,\na,b\n'}, r"line 3: more.*line 5: expected"
    ),
    "text": (
        {"train.en": b"a\n\xe9\na\na\na\n", "train.fr": b"b\nb\nb\nb\0\nb\n"},
        r"train.en, line 2: not UTF-8 .*; .*train.fr, line 4: a NUL byte",
    ),
    "long lines": (
        {"train.en": "a\n" + "x" * LONGEST_LINE + "\na\na\na\n", "train.fr": "b\nb\nb\nb\0\nb\n"},
        r"train.en, line 2: more than 1,048,576 bytes.*train.fr, line 4",
    ),
    "links": (
        {"train.en": "a\na\na\na\na\n", "train.fr": "b\nb\nb\nb\nb\n", "train.align": "0-0\n0:0\n\n0-1\n\n"},
        r"train.align, line 2: alignment link .0:0.*train.align, line 4: alignment link 0-1",
    ),
    "numbers of many digits": (
        {"train.jsonl": jsonl([GOOD, "9" * 5000, GOOD, "[" * 100_000, GOOD])},
        r"line 2: not JSON .*line 4: not JSON",
    ),
}  # fmt: skip


def test_columns_without_a_name_are_said_to_need_one(tmp_path):
    lay(tmp_path, {"train.tsv": "a\tb\tCC BY\n" * 3})
    with pytest.raises(
        UserError, match=r"line 1: expected 2 columns .*, got 3: name them all in data.columns"
    ):
        read(tmp_path, columns=("en", "fr"))


@pytest.mark.parametrize("case", BAD)
def test_all_bad_rows_are_reported_at_once_and_left_out_if_told(tmp_path, case, caplog):
    files, message = BAD[case]
    lay(tmp_path, files)
    with pytest.raises(UserError, match=rf"2 bad rows: .*{message}.*data.bad_rows=skip") as error:
        read(tmp_path)
    assert "\n" not in str(error.value)
    assert [row[:2] for row in read(tmp_path, skip_bad=True)] == [("a", "b")] * 3
    [record] = caplog.records
    assert "2 bad rows: " in record.message


def test_the_first_ten_of_many_bad_rows_are_named(tmp_path):
    lay(tmp_path, {"train.jsonl": jsonl([GOOD, *["x"] * 1_500])})
    numbers = ", ".join(map(str, range(2, 12)))
    with pytest.raises(
        UserError, match=rf"1,500 bad rows: .*train.jsonl, lines {numbers}: not JSON .*; …\. To"
    ) as error:
        read(tmp_path)
    assert len(str(error.value)) < 300 + len(str(tmp_path))


def test_without_a_good_row_none_is_left_out(tmp_path):
    lay(tmp_path, {"train.jsonl": jsonl(["x", "y"])})
    for skip_bad in (False, True):
        with pytest.raises(UserError, match=r"2 bad rows: .*lines 1, 2: not JSON \(.*\)$"):
            read(tmp_path, skip_bad=skip_bad)


def test_bad_rows_are_counted_from_the_cache_too(tmp_path, caplog):
    lay(tmp_path, {"train.jsonl": jsonl([GOOD, "x"])})
    languages = {"src_lang": "en", "tgt_lang": "fr", "cache_dir": tmp_path / "cache"}
    for _ in range(2):
        caplog.clear()
        assert list(read_files(tmp_path, **languages, bad_rows="skip")["train"]) == [{"src": "a", "tgt": "b"}]
        [record] = caplog.records
        assert "train.jsonl, line 2: not JSON" in record.message
    with pytest.raises(UserError, match=r"line 2: not JSON .* To leave bad rows out: data.bad_rows=skip"):
        read_files(tmp_path, **languages)


def test_a_quote_that_hides_rows_is_no_bad_row(tmp_path):
    lay(tmp_path, {"train.csv": 'en,fr\na,b\n"a,b\nc,d\ne,f"g\n'})
    with pytest.raises(UserError, match=r"train.csv, line 3: not CSV, a quote is not closed"):
        read(tmp_path, skip_bad=True)


@pytest.mark.parametrize("cut", [0, 1, 30, 70_000])
def test_a_json_array_that_is_cut_off_is_named(tmp_path, cut):
    rows = [{"en": f"a {number} {'x' * 50}", "fr": "]"} for number in range(2_000)]
    whole = json.dumps(rows)
    lay(tmp_path, {"train.json": whole[: len(whole) - cut]})
    if cut:
        with pytest.raises(UserError, match=r"train.json: not JSON"):
            read(tmp_path)
    else:
        assert read(tmp_path) == [(row["en"], row["fr"]) for row in rows]


def test_a_large_json_array_is_refused_with_the_command_for_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("nmt.data.formats._LARGEST_ARRAY", 20)
    lay(tmp_path, {"train.json.gz": gzip.compress(json.dumps([GOOD]).encode())})
    with pytest.raises(UserError, match=r"256 MiB; .* gzip -dc train.json.gz \| jq -c '.\[\]' > train.jsonl"):
        read(tmp_path)


# Files that nobody wrote by hand.

LONG = "x" * (LONGEST_LINE + 1)
HOSTILE = {
    "lists in lists": (
        "train.jsonl",
        '{"en": ' + "[" * 800 + "]" * 800 + ', "fr": "x"}',
        "line 1: lists in lists",
    ),
    "a long name": ("train.jsonl", f'{{"{LONG[:-20]}": 1}}', r'no "en"; the names there are x{80}: set'),
    "a long text": ("train.json", f'[{{"en": "{LONG}", "fr": "x"}}]', 'item 1: "en" has more than 1,048,576'),
    "a long line": ("train.csv", f"{LONG}\nen,fr\n", "line 1: more than 1,048,576 bytes"),
    "a long open quote": ("train.csv", '"' + f"{LONG[9:]}\n" * 3, "line 1: not CSV, a quote is not closed"),
    "a long column": (
        "train.csv",
        f"en,en,fr,{LONG[20:]}\n",
        r"line 1: a column is named twice: en,en,fr,x{71}$",
    ),
    "a lone return": ("train.csv", "en;fr\na\rb;c\n", "line 2: not CSV .new-line character"),
    "returns alone": ("train.csv", "en,fr\ra,b\r", "line 1: not CSV .new-line character"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_text_is_refused_in_one_line(tmp_path, case):
    name, content, message = HOSTILE[case]
    lay(tmp_path, {name: content})
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path)
    assert len(str(error.value)) < 400 + len(str(tmp_path))


def test_a_lone_return_does_not_hide_the_separator(tmp_path):
    lay(tmp_path, {"train.csv": "en;fr\na\rb;c\nd;e\n"})
    assert read(tmp_path, skip_bad=True) == [("d", "e")]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.date32()])
def test_a_date_that_is_none_is_refused(tmp_path, kind):
    pq.write_table(
        pa.table({"en": pa.array([2**62 if kind == pa.timestamp("us") else 2**30], kind), "fr": ["x"]}),
        tmp_path / "train.parquet",
    )
    with pytest.raises(UserError, match=r"train.parquet is broken or no Parquet file \("):
        read(tmp_path)


def test_a_text_that_parquet_repeats_is_held_a_few_times(tmp_path):
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 5_000, pa.int32()), pa.array([LONG]))
    pq.write_table(pa.table({"en": texts, "fr": ["x"] * 5_000}), tmp_path / "train.parquet")
    before = pa.total_allocated_bytes()
    rows = located_rows(find(tmp_path, "train", Languages("en", "fr")), Languages("en", "fr"))
    assert "more than 1,048,576 characters" in str(next(rows)[2])
    assert pa.total_allocated_bytes() - before < 500 * LONGEST_LINE
    rows.close()


def test_lines_in_a_cell_take_time_in_proportion(tmp_path):
    lay(tmp_path, {"train.tsv": ('en\tfr\n"' + "\n" * (LONGEST_LINE - 10) + '"\tx\n')})
    began = time.process_time()
    [(text, _)] = read(tmp_path)
    assert not text.strip()
    assert time.process_time() - began < 10


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name")
def test_a_device_or_pipe_is_no_text(tmp_path):
    lay(tmp_path, {"train.fr": "x\n"})
    (tmp_path / "train.en").symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"train.en is a pipe or a device"):
        read(tmp_path)
    (tmp_path / "train.en").unlink()
    os.mkfifo(tmp_path / "train.en")
    with pytest.raises(UserError, match=r"train.en is a pipe or a device"):
        read(tmp_path)


# Long lines.


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_long_line_is_refused_before_it_is_in_memory(tmp_path, pack):
    file = tmp_path / ("long.txt.gz" if pack is gzip.compress else "long.txt")
    file.write_bytes(pack(b"short\n" + b"x" * (10 * LONGEST_LINE) + b"\nshort\n"))
    tracemalloc.start()
    lines = read_lines(file)
    assert next(lines) == "short"
    with pytest.raises(UserError, match=r"long.txt(.gz)?, line 2: more than 1,048,576 bytes"):
        next(lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * LONGEST_LINE


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_line_may_be_as_long_as_its_bound(tmp_path, mark):
    for extra, fits in ((0, True), (1, False)):
        lines = [f"{'x' * (9 + extra)}\n", "y\n"]
        lay(tmp_path, {"a.txt": mark + "".join(lines)})
        found = read_lines(tmp_path / "a.txt", longest=10)
        if fits:
            assert list(found) == ["x" * 9, "y"]
        else:
            with pytest.raises(UserError, match="line 1: more than 10 bytes"):
                next(found)
