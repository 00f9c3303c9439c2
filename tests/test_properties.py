"""What must hold of any text, whatever it is: readers give it back, pieces give it back, words find their pieces."""

import csv
import gzip
import io
import json
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.find import Languages, find
from nmt.data.formats import read_rows
from nmt.data.tokenizer import Tokenizer
from tests.small import SPECIAL_IDS, own_model
from tests.test_tokenizer import ENGLISH, VIETNAMESE

# The same examples each time, so that a failure is the change's and not the day's.
settings.register_profile("same examples", derandomize=True, database=None, deadline=None, max_examples=60)
settings.load_profile("same examples")

# Readers. Each form writes pairs of text as bytes; `without` are the characters that it has no way to hold.

Pairs = list[tuple[str, str]]


def jsonl(pairs: Pairs) -> bytes:
    return "".join(json.dumps({"b": b, "a": a}) + "\n" for a, b in pairs).encode()


def jsonl_unescaped(pairs: Pairs) -> bytes:
    rows = [{"id": 1, "translation": {"a": a, "b": b}} for a, b in pairs]
    return "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


def tsv(pairs: Pairs) -> bytes:
    return "".join(f"{b}\t{a}\n" for a, b in [("a", "b"), *pairs]).encode()


def comma_separated(pairs: Pairs) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("a", "b"), *pairs])
    return text.getvalue().encode()


def parquet(pairs: Pairs) -> bytes:
    table = io.BytesIO()
    pq.write_table(pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}), table)
    return table.getvalue()


FORMS: dict[str, tuple[Callable[[Pairs], bytes], str]] = {
    "train.jsonl": (jsonl, "\0"),
    "train.jsonl.gz": (jsonl_unescaped, "\0"),
    "train.tsv": (tsv, "\0\r\n\t"),
    "train.csv": (comma_separated, "\0\r"),
    "train.parquet": (parquet, "\0"),
}


def texts(without: str) -> st.SearchStrategy[str]:
    """Any text of Unicode, with what a careless reader trips over more often than by chance."""
    any_character = st.characters(codec="utf-8", exclude_characters=without)
    tripwires = [each for each in "\n\t \"',\\\x0b\x0c\x1c\x85\u2028\ufeff{" if each not in without]
    return st.text(any_character | st.sampled_from(tripwires), max_size=12)


@pytest.mark.parametrize("name", FORMS)
@given(data=st.data())
def test_any_text_in_any_form_is_read_as_it_was_written(name, data):
    write, without = FORMS[name]
    pairs = data.draw(st.lists(st.tuples(texts(without), texts(without)), min_size=1, max_size=4))
    content = write(pairs)
    assert rows_of({name: gzip.compress(content) if name.endswith(".gz") else content}, "a", "b") == pairs
    assert rows_of({name: gzip.compress(content) if name.endswith(".gz") else content}, "b", "a") == [
        (b, a) for a, b in pairs
    ]


@given(pairs=st.lists(st.tuples(texts("\0\r\n"), texts("\0\r\n")), min_size=1, max_size=4), end=st.booleans())
def test_any_lines_of_plain_text_are_read_as_they_were_written(pairs, end):
    """After a byte order mark, with either line end, with or without one at the end of the file."""
    a = "\ufeff" + "".join(f"{a}\n" for a, _ in pairs)
    b = "\ufeff" + "\r\n".join(b for _, b in pairs) + ("\r\n" if end or not pairs[-1][1] else "")
    assert rows_of({"train.a": a.encode(), "train.b.gz": gzip.compress(b.encode())}, "a", "b") == pairs


def rows_of(files: dict[str, bytes], src: str, tgt: str) -> list[tuple[str, ...]]:
    languages = Languages(src, tgt)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        found = find(Path(folder), "train", languages)
        assert found is not None
        return list(read_rows(found.shards, languages))


# Pieces.

LINES = ["the cat sees a dog .", "một con chó già ngủ .", "she has bought 3 books , and reads"]


@pytest.fixture(scope="module")
def with_bytes() -> Tokenizer:
    return Tokenizer(own_model(ENGLISH + VIETNAMESE, byte_fallback=True, vocab_size=340, **SPECIAL_IDS))


@pytest.fixture(scope="module")
def with_unknowns() -> Tokenizer:
    return Tokenizer.train(LINES, [], model_type="bpe", joint=True, vocab_size=54, character_coverage=1.0)


@pytest.fixture(scope="module")
def as_it_is() -> Tokenizer:
    return Tokenizer.train(
        LINES,
        [],
        model_type="bpe",
        joint=True,
        vocab_size=54,
        character_coverage=1.0,
        normalization="identity",
    )


# Letters, numbers, punctuation, symbols and spaces, but for those that SentencePiece treats otherwise than NFKC.
LITERAL = st.characters(categories=["L", "N", "P", "S", "Z"], exclude_characters="\u2581\ufffd\uff5e")
ANYTHING = st.characters(codec="utf-8", exclude_characters="\u2581") | st.sampled_from(
    "ab .\u0301\u200b\u1100\u1161"
)


@given(text=st.text(LITERAL, max_size=20))
def test_pieces_give_back_the_text_in_nfkc(with_bytes, text):
    [decoded] = with_bytes.decode(with_bytes.encode_target([text]))
    assert decoded == " ".join(unicodedata.normalize("NFKC", text).split())


@given(text=st.text(ANYTHING, max_size=20))
def test_pieces_of_what_was_decoded_give_it_back(with_bytes, text):
    once = with_bytes.decode(with_bytes.encode_target([text]))
    assert with_bytes.decode(with_bytes.encode_target(once)) == once


@pytest.mark.parametrize("vocabulary", ["with_bytes", "with_unknowns", "as_it_is"])
@given(text=st.text(ANYTHING.filter(lambda each: unicodedata.category(each) != "Cc"), max_size=20))
def test_every_word_that_is_not_normalised_away_has_pieces(request, vocabulary, text):
    """Control characters apart: SentencePiece drops them, also those at which Python splits, and joins two words."""
    tokenizer = request.getfixturevalue(vocabulary)
    ids, words = tokenizer.align_source(text)
    assert [ids] == tokenizer.encode_source([text])
    assert len(words) == len(ids)
    assert words[-1] == -1
    assert words[:-1] == sorted(words[:-1])
    alone = tokenizer.encode_source(text.split())
    assert set(words[:-1]) == {index for index, pieces in enumerate(alone) if len(pieces) > 1}


@pytest.mark.parametrize("vocabulary", ["with_bytes", "with_unknowns", "as_it_is"])
@given(data=st.data())
def test_every_word_of_any_hypothesis_has_pieces(request, vocabulary, data):
    tokenizer = request.getfixturevalue(vocabulary)
    ids = data.draw(st.lists(st.integers(0, tokenizer.tgt_vocab_size - 1), max_size=20))
    words = tokenizer.target_words(ids)
    assert len(words) == len(ids)
    assert {word for word in words if word >= 0} == set(range(len(tokenizer.decode([ids])[0].split())))
