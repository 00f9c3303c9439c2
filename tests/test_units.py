"""Words, pieces and characters: how text is divided, and attention and links between them."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest

from nmt import alignment, metrics
from nmt.comparison import figures
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.run.history import History
from nmt.run.run import Run
from tests.commands import align, translate
from tests.small import SMALL, make_run, written

ENGLISH = ["the cat sleeps at home .", "I like apples .", "we go to the park .", "he has a Python book ."]
CHINESE = ["猫在家睡觉。", "我喜欢苹果。", "我们去公园。", "他有一本Python书。"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """With pieces of several characters, as 公园."""
    options = {"model_type": "bpe", "joint": True, "vocab_size": 110, "character_coverage": 1.0}
    return Tokenizer.train(CHINESE * 20, ENGLISH * 20, **options)


@pytest.fixture(scope="module")
def run_dir(tokenizer, tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("zh"), *SMALL, tokenizer=tokenizer)


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    return {"src": written(tmp_path / "src", *CHINESE), "tgt": written(tmp_path / "tgt", *ENGLISH)}


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("the cat sleeps .", "the cat sleeps ."),
        ("con mèo ngủ", "con mèo ngủ"),
        ("안녕하세요 세계", "안녕하세요 세계"),  # Korean has spaces
        ("猫は寝ている。", "猫 は 寝 て い る 。"),
        ("コーヒー", "コ ー ヒ ー"),
        ("他有1本Python书，OK？", "他 有 1 本 Python 书 ， OK ？"),
        ("他 有 一本 书 。", "他 有 一本 书 。"),  # whose words are separated already
        ("今天天气很好 我们去公园", "今 天 天 气 很 好 我 们 去 公 园"),  # a space between two clauses
        ("the word “猫” means cat", "the word “猫” means cat"),
        ("ที่นี่", "ที่ นี่"),  # a character has its vowels and tones
        ("ភាសា\u200bខ្មែរ", "ភា សា ខ្មែ រ"),
        ("བོད་", "བོ ད ་"),
        ("我们 ¶ 猫", "我 们 ¶ 猫"),
        ("", ""),
    ],
)
def test_auto_is_words_or_characters_of_text_without_spaces(text, units):
    assert alignment.split_units(text) == units.split()
    assert alignment.split_units(text, "words") == text.split()


def test_characters_have_their_marks_and_leave_out_spaces():
    family = "👨\u200d👩\u200d👧"
    found = alignment.split_units(f"a e\u0301\u3000b\t{family} \u0301", "characters")
    assert found == ["a", "e\u0301", "b", family, "\u0301"]


@pytest.mark.parametrize("text", [*CHINESE, "他 有 书", "公园公园 的the猫", "ｶﾞ㍿①猫猫猫", ""])
@pytest.mark.parametrize("units", ["auto", "words", "characters", "pieces"])
def test_each_piece_spells_the_labels_of_its_group(tokenizer, text, units):
    """Groups follow each other, their labels are the text, and each label of a piece's text is in its group."""
    side = tokenizer.source_side(text, units)
    ids, pieces = (
        tokenizer.encode_source([text])[0],
        tokenizer.source_pieces(tokenizer.encode_source([text])[0]),
    )
    assert len(side.groups) == len(ids)
    assert side.groups[-1] == -1
    assert side.groups[:-1] == sorted(side.groups[:-1])
    assert sum(side.sizes) == len(side.labels)
    if units == "pieces":
        assert (side.groups[:-1], side.sizes) == ([*range(len(pieces) - 1)], [1] * (len(pieces) - 1))
        known = zip(side.labels, pieces, strict=False)
        assert all(label == piece for label, piece in known if piece != "<unk>")
        return
    assert "".join(side.labels) == "".join(text.split())
    if units == "words":
        assert set(side.sizes) <= {1}
        return
    spelled = [""] * len(side.sizes)
    for piece, group in zip(pieces[:-1], side.groups[:-1], strict=True):
        spelled[group] += piece.replace("▁", "")
    ends = np.cumsum(side.sizes)
    of_groups = ["".join(side.labels[end - size : end]) for end, size in zip(ends, side.sizes, strict=True)]
    if "⁇" not in "".join(pieces) and tokenizer.unk_id not in ids:
        assert spelled == [unicodedata.normalize("NFKC", each) for each in of_groups]


def test_characters_share_the_weight_of_their_piece():
    """Rows [T, S] by a loop: pieces 我们 | 去 | end, and a | bc | end."""
    weights = np.array([[0.6, 0.2, 0.2], [0.1, 0.8, 0.1]])
    source = alignment.make_side("我们去", ["▁我们", "去"], [(0, 2), (2, 3)], "auto")
    target = alignment.make_side("abc", ["▁a", "bc"], [(0, 1), (1, 3)], "characters")
    assert (source.groups, source.sizes) == ([0, 1], [2, 1])
    found = alignment.weights_between(weights, target, source._replace(groups=[0, 1, -1]))
    expected = [[0.6 / 0.8 / 2, 0.6 / 0.8 / 2, 0.2 / 0.8]] + [[0.1 / 0.9 / 2, 0.1 / 0.9 / 2, 0.8 / 0.9]] * 2
    np.testing.assert_allclose(found, expected)


def test_all_characters_of_a_piece_are_linked():
    """A long piece does not lose against a short one because its weight is shared."""
    weights = [[0.2, 0.2, 0.2, 0.4], [0.1, 0.1, 0.1, 0.7]]
    links = alignment.links_from_weights(weights, sizes=[3, 1])
    assert links == {(0, 0), (1, 0), (2, 0), (3, 1)}
    assert alignment.links_from_weights(weights, "threshold", threshold=0.5, sizes=[3, 1]) == links
    assert alignment.links_from_weights(weights, "mutual", sizes=[3, 1]) == links
    assert alignment.links_from_weights(weights, sizes=[1] * 4) == {(3, 0), (3, 1)}


def test_a_translation_is_between_units(run_dir):
    run = Run.load(run_dir)
    for units, of_source in (
        ("auto", list(CHINESE[0])),
        ("words", [CHINESE[0]]),
        ("characters", list(CHINESE[0])),
    ):
        [found] = run.translate([CHINESE[0]], units=units)
        assert found.source_words == of_source
        assert found.weights.shape == (len(found.target_words), len(of_source))
        np.testing.assert_allclose(found.weights.sum(axis=1), 1, atol=1e-6)
        assert {j for _, j in found.links} == set(range(len(found.target_words)))
    [found] = run.translate([CHINESE[0]], units="pieces")
    assert found.source_words == run.tokenizer.source_side(CHINESE[0], "pieces").labels
    assert "".join(found.target_words).replace("▁", " ").strip() == found.text
    without = run.translate([CHINESE[0]], need_weights=False)[0]
    assert without.source_words == list(CHINESE[0])


@pytest.mark.parametrize("units", ["auto", "words", "pieces", "characters"])
def test_a_long_line_keeps_its_units_and_their_links(run_dir, monkeypatch, units):
    """Its parts' weights stand in blocks; a character has the links of its part."""
    run = Run.load(run_dir)
    monkeypatch.setattr("nmt.run.translating.MOST_PIECES", 9)
    line = "".join(CHINESE[:3])
    [found] = run.translate([line], units=units)
    parts = [run.translate([part], units=units)[0] for part in run._parts(line)]
    assert len(parts) == 3
    of_parts = [word for part in parts for word in part.source_words]
    assert found.source_words == ([line] if units == "words" else of_parts)
    assert found.weights.sum() == pytest.approx(sum(part.weights.sum() for part in parts))
    links, row, column = set(), 0, 0
    for part in parts:
        links |= {(0 if units == "words" else i + column, j + row) for i, j in part.links}
        row, column = row + len(part.target_words), column + len(part.source_words)
    assert found.links == links


def test_commands_write_links_between_units(run_dir, files, tmp_path):
    run, out = Run.load(run_dir), tmp_path / "out"
    for units in ("auto", "words", "characters", "pieces"):
        align(run=run_dir, **files, units=units, output=out)
        pairs = run.align_pairs(CHINESE, ENGLISH, units=units)
        expected = {row: alignment.format_pharaoh(pair.links()) for row, pair in pairs}
        assert out.read_text("utf-8").splitlines() == [expected[row] for row in range(len(CHINESE))]
        translate(run=run_dir, input=files["src"], output=tmp_path / "text", alignments=out, units=units)
        found = run.translate(CHINESE, units=units)
        assert out.read_text("utf-8").splitlines() == [alignment.format_pharaoh(each.links) for each in found]
    assert align(run=run_dir, **files, output=out, reverse_run=run_dir) is None
    with pytest.raises(UserError, match="units=pieces has no meaning with reverse_run"):
        align(run=run_dir, **files, units="pieces", reverse_run=run_dir)


def test_a_history_shows_characters_of_text_without_spaces():
    """Its weights say which units they are between; a page has room for so many validations."""
    source, target = (np.array([text]) for text in (CHINESE[1], ENGLISH[0]))
    size = len(alignment.split_units(CHINESE[1]))
    weights = np.full((9, len(ENGLISH[0].split()), size), 1 / size)
    greedy, aer = np.full((9, 1), "a"), np.full((9, 1), np.nan)
    rows, gold = np.array([0]), [np.empty((0, 2), dtype=int)]
    history = History(np.arange(9), rows, source, target, greedy, aer, [weights], gold)
    [group] = history.groups()
    assert len(group.sentences) == 9
    assert group.sentences[0].source == list(CHINESE[1])
    assert group.sentences[0].target == ENGLISH[0].split()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt.run.history.MOST_OF_PAGE", 3 * weights[0].size)
        assert [each.title for each in history.groups()[0].sentences] == ["step 6", "step 7", "step 8"]


def test_scores_by_length_count_characters_of_text_without_spaces():
    metric = metrics.Bleu(tokenize="char", lowercase=False)
    found = figures.score_by_length([CHINESE], CHINESE, CHINESE, metric, bounds=[6, 8])
    assert found["units"] == "characters"
    sizes = [len(alignment.split_units(line)) for line in CHINESE]
    assert found["buckets"] == [
        name
        for name, low, high in (("0-6", 0, 6), ("7-8", 7, 8))
        if any(low <= size <= high for size in sizes)
    ]
    english = figures.score_by_length([ENGLISH], ENGLISH, ENGLISH, metric, bounds=[6, 8])
    assert (english["units"], english["buckets"]) == ("words", ["0-6"])


def test_gold_links_count_words_unless_told_otherwise(run_dir, files, tmp_path, capsys):
    gold = written(tmp_path / "gold", "0-0", "0-2", "0-5", "")
    align(run=run_dir, **files, gold=gold)
    by_words = capsys.readouterr().out
    align(run=run_dir, **files, gold=gold, units="words")
    assert capsys.readouterr().out == by_words
    align(run=run_dir, **files, gold=gold, units="characters")
    assert capsys.readouterr().out != by_words
    beyond = written(tmp_path / "beyond", "", "", "3-5", "")
    with pytest.raises(UserError, match=r"beyond:3: link 3-5 is out of range: the line has 1 words in"):
        align(run=run_dir, **files, gold=beyond)
    align(run=run_dir, **files, gold=beyond, units="characters")
