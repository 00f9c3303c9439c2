"""Preparation of text: damage that is made on purpose is found, sound text is kept, copies are whole."""

import json
import random
import re
import shlex
import unicodedata
from itertools import chain, cycle, pairwise
from pathlib import Path

import numpy as np
import pytest

from nmt.commands.prepare import examine, find_splits
from nmt.data import grammar
from nmt.data.corpus import read_files
from nmt.data.find import Languages, find
from nmt.data.formats import read_rows
from nmt.preparation.codes import Codes
from nmt.preparation.counts import Counts
from nmt.preparation.problems import BIT, BOUNDS, find_problems, form_of, has
from nmt.preparation.recipe import write_recipe
from nmt.preparation.shifts import SHIFTS, find_stretches
from nmt.preparation.trigrams import LanguageOdds, log_odds
from nmt.preparation.word_pairs import WordPairs
from tests.commands import compose, refused, run, run_composed, unread

LANGS = ["data.src_lang=en", "data.tgt_lang=vi"]
ON_BY_DEFAULT = [name for name, value in compose("prepare").rules.items() if value]


def named(bits: int) -> set[str]:
    return {name for name, bit in BIT.items() if bits & bit}


@pytest.mark.parametrize(
    ("src", "tgt", "problems"),
    [
        ("A dog .", "Un chien .", set()),
        (" \t", "Un chien .", {"empty"}),
        ("Paris 2010", "Paris 2010 ", {"equal"}),
        ("12,000 dogs in 2010", "12 000 chiens en 2010", set()),
        ("2 dogs", "Deux chiens", set()),
        ("12 dogs", "13 chiens", {"numbers"}),
        ("see www.a.org.", "voir www.a.org", set()),
        ("see http://a.org/b", "voir", {"links"}),
        ("write to a.b@c.org", "écrire à a.b@c.com", {"links"}),
        ("a <b>dog</b>", "un chien", {"markup"}),
        ("a < b and c > d", "a < b et c > d", set()),
        ("R&B; rock", "R&B ; rock", set()),
        ("it &apos;s", "c' est", {"markup"}),
        ("a\u200bdog", "un chien", {"characters"}),
        ("a dog", "un\x07 chien", {"characters"}),
        ("नमस्ते क्‍ष", "bonjour", set()),  # a joiner belongs there
        ("caf\ufffd", "café", {"mojibake"}),
    ],
)
def test_problems_of_a_pair(src, tgt, problems):
    assert named(find_problems(src, tgt)) == problems


def test_numbers_of_thousands_of_digits_are_compared():
    number = "9" * 5000
    assert named(find_problems(f"no {number}", f"số {number}")) == set()
    assert named(find_problems(f"no {number}", f"số {number}1")) == {"numbers"}
    assert named(find_problems("a" + 2000 * " 123", "b" + 2000 * " 123")) == set()


SENTENCES = [
    "Il a été à l'école « hier » — déjà.",
    "J’étais “ému”–énervé à Xê–út",
    "Tiếng Việt được viết bằng chữ Quốc ngữ.",
    "Größe, Übung und Äpfel für Ä.",
    "Καὶ ὁ λόγος ἦν πρὸς τὸν θεόν",
    "Это уже не первый раз",
    "私は犬です",
    "ÃO É SÃO JOÃO, À ÉVORA Â",
    "ça coûte 5 € ou 3 £ – Ångström",
    "LIBERTÉ\xa0! « à l'état\xa0», puis «\xa0École fermée\xa0».",
    "«él» y »ähnlich« … “JOSÉ” «perché…» …è",
]


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "mac_roman", "cp1251"])
def test_misread_text_is_mojibake_and_sound_text_is_not(sentence, encoding):
    damaged = sentence.encode().decode(encoding, "ignore")
    assert "mojibake" not in named(find_problems("x", sentence))
    if encoding != "cp1251" or len(damaged) > 1.7 * len(
        sentence
    ):  # in cp1251 a single pair of letters may be text
        assert "mojibake" in named(find_problems("x", damaged))


def test_unicode_forms_are_told_apart():
    for text, form in (("été", -1), (unicodedata.normalize("NFD", "été"), 1), ("ete", 0), ("東京", 0)):
        assert form_of(text) == form


def test_words_are_those_of_a_regular_expression():
    lines = ["It's 12 o'clock — Ἀβραὰμ", "", "私は犬 dog です", "नमस्ते दुनिया!", "..."]
    words = Codes(lines).words
    wanted = [re.findall(r"[぀-ヿ一-鿿]|[\w\u0900-\u0963]+", line.replace("私", "私")) for line in lines]
    wanted[2] = ["私", "は", "犬", "dog", "で", "す"]
    assert words.lengths.tolist() == list(map(len, wanted))
    same = Codes(["dog犬 12 It's"]).words.codes.tolist()
    assert same[0] == words.codes[words.starts[2] + 3]
    assert same[1] == words.codes[words.starts[2] + 2]
    assert same[2] == words.codes[2]
    assert len(Codes(["ab ba abc acb aab"]).words.codes) == len(
        set(Codes(["ab ba abc acb aab"]).words.codes.tolist())
    )


def test_trigrams_do_not_cross_lines():
    assert Codes(["abc", "", "d"]).trigrams.lengths.tolist() == [3, 0, 1]
    codes = Codes(["abc", "", "d"]).trigrams.codes.tolist()
    assert codes == [*Codes(["abc"]).trigrams.codes.tolist(), *Codes(["d"]).trigrams.codes.tolist()]


def best_path(scores: np.ndarray, cost: float) -> list[int]:
    """By a table of all steps, as a textbook has it."""
    total = [[-cost * (state > 0) + scores[0, state] for state in range(scores.shape[1])]]
    back = []
    for line in range(1, len(scores)):
        steps = [
            [total[-1][a] - cost * (a != b) for a in range(scores.shape[1])] for b in range(scores.shape[1])
        ]
        back.append([max(range(len(row)), key=row.__getitem__) for row in steps])
        total.append([max(row) + scores[line, b] for b, row in enumerate(steps)])
    path = [max(range(scores.shape[1]), key=total[-1].__getitem__)]
    for row in reversed(back):
        path.append(row[path[-1]])
    return path[::-1]


def test_stretches_are_the_best_path():
    draw = np.random.default_rng(2)
    for _ in range(5):
        scores = draw.normal(-6, 3, (120, len(SHIFTS)))
        first, last, state = 30, 89, int(draw.integers(1, len(SHIFTS)))
        scores[:, 0] += 16
        scores[first : last + 1, 0] -= 16
        scores[first : last + 1, state] += 16
        scores = scores.round().clip(-15, 15).astype(np.int8)
        path = best_path(scores.astype(float), 40)
        [stretch] = find_stretches({500: scores[:60], 560: scores[60:]})
        inside = [500 + line for line, each in enumerate(path) if each]
        assert (stretch.first, stretch.last, stretch.shift) == (inside[0], inside[-1], SHIFTS[state])


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    """Sentences of the built-in grammar, none twice, with names and numbers of their own."""
    corpus = grammar.corpus(num_train=1600, num_val=1, num_test=1, min_words=4, max_words=14, seed=3)["train"]
    return list(dict.fromkeys((pair.en, pair.vi) for pair in corpus))


def write(folder: Path, rows: list[tuple[str, str]], split: str = "train") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for side, lang in enumerate(("en", "vi")):
        text = "".join(f"{row[side]}\n" for row in rows)
        (folder / f"{split}.{lang}").write_text(text, "utf-8", newline="\n")
    return folder


def examined(folder: Path):
    splits = find_splits(compose("prepare", f"data.path={folder}", *LANGS).data)
    examine(splits, BOUNDS, 1)
    return splits


def cut(line: str) -> str:
    words = line.split()
    return " ".join(words[: len(words) // 2])


def german(seed: int) -> str:
    """Words of a third language in any order."""
    words = "das Haus ist nicht groß und der alte Hund schläft schon seit gestern auf dem Boden während Kinder essen"
    return " ".join(random.Random(seed).choices(words.split(), k=8))


DAMAGE = {
    "swapped": lambda src, tgt: (tgt, src),
    "untranslated": lambda src, tgt: (src, f"{src} {src}"),
    "foreign": lambda src, tgt: (src, german(len(src) * 1000 + len(tgt))),
    "mojibake": lambda src, tgt: (src, tgt.encode().decode("cp1252", "ignore")),
    "truncated": lambda src, tgt: (src, cut(tgt)),
}


@pytest.fixture(scope="module")
def clean(pairs, tmp_path_factory):
    """The findings in the sound text."""
    return examined(write(tmp_path_factory.mktemp("clean"), pairs))[-1]


def test_sound_text_is_kept(clean, pairs):
    assert len(clean.bits) == len(pairs)
    assert has(clean.bits, *ON_BY_DEFAULT).mean() <= 0.005
    assert not clean.stretches


def test_short_lines_and_repeated_pairs_are_in_no_other_language(pairs, tmp_path):
    def end_of(pair: tuple[str, str], words: int) -> tuple[str, str]:
        src, tgt = (" ".join(line.split()[-words:]) for line in pair)
        return src, tgt

    texts = {
        "short": [end_of(pair, 2) for pair in pairs],
        "headings": [
            end_of(pair, 1) if number % 13 == 0 else pair for number, pair in enumerate(pairs[:900])
        ],
        "repeated": pairs[:400] * 5,
    }
    for name, rows in texts.items():
        [found] = examined(write(tmp_path / name, rows))
        assert not has(found.bits, "foreign").any(), name


def test_untranslated_and_copied_words_are_in_no_other_language(pairs, tmp_path):
    """Half of the lines are not translated, as in the texts of a program."""
    hebrew = str.maketrans("abcdefghijklmnopqrstuvwxyz", "אבגדהוזחטיכלמנסעפצקרשתאבגד")
    rows = [(src, src if number % 2 else src.translate(hebrew)) for number, (src, _) in enumerate(pairs)]
    rows[:2] = [
        ("unknown Tag_ABI_array_alignment value", "Tag_ABI_array_alignment אבגד"),
        ("a dog here", "привет"),
    ]
    [found] = examined(write(tmp_path, rows))
    assert not has(found.bits, "foreign").any()
    assert np.flatnonzero(has(found.bits, "script")).tolist() == [1]


def test_a_title_that_stands_on_both_sides_is_in_no_other_language(pairs, tmp_path):
    def row(number: int, src: str, tgt: str) -> tuple[str, str]:
        if number % 20 == 0:
            return src, german(number)
        return (f"{src} {german(number)}", f"{tgt} {german(number)}") if number % 100 == 1 else (src, tgt)

    [found] = examined(write(tmp_path, [row(number, *pair) for number, pair in enumerate(pairs)]))
    is_foreign = has(found.bits, "foreign")
    assert is_foreign[::20].mean() > 0.95
    assert not is_foreign[1::100].any()


def test_another_subject_and_another_unicode_form_are_no_other_language(pairs, tmp_path):
    draw = random.Random(1)

    def words(letters: str) -> str:
        return " ".join("".join(draw.choices(letters, k=6)) for _ in range(5))

    texts = {
        "subject": [
            (words("jkqwxz"), words("fjwz")) if number % 4 == 0 else pair for number, pair in enumerate(pairs)
        ],
        "form": [
            (src, unicodedata.normalize("NFD", tgt) if number % 10 == 0 else tgt)
            for number, (src, tgt) in enumerate(pairs)
        ],
    }
    for name, rows in texts.items():
        [found] = examined(write(tmp_path / name, rows))
        assert not has(found.bits, "foreign").any(), name


def test_names_are_not_shifted(pairs, tmp_path):
    """Each name stands once, and its target is made of letters that are words, as in Japanese."""
    draw = random.Random(1)
    rows = pairs[:800]
    for _ in range(400):
        name = draw.choices("bcdfghjklmnp", k=4)
        rows.append(
            (
                "".join(letter + draw.choice("aeiou") for letter in name),
                "".join(draw.choices("アイウエオカキクケコサシスセソ", k=4)),
            )
        )
    [found] = examined(write(tmp_path, rows))
    assert not found.stretches


def test_numbers_are_in_no_language_and_near_no_other_number(tmp_path):
    draw = np.random.default_rng(0)
    rows = [(number, number[::-1]) for number in map(str, draw.integers(10, 10**9, 500))]
    write(tmp_path, [(f"1{src}", tgt) for src, tgt in rows[:50]], "val")
    found = examined(write(tmp_path, rows))[-1]
    assert not has(found.bits, "swapped", "untranslated", "near").any()


def test_pairs_of_short_lines_break_nothing_off(pairs, tmp_path):
    short = [tuple(" ".join(line.split()[:2]) for line in pair) for pair in pairs]
    [found] = examined(write(tmp_path, short))
    assert not has(found.bits, "truncated", "mismatched").any()


def test_free_translations_of_rare_words_are_not_shifted(tmp_path):
    """A third of the words have their translation, and most words are too rare to be known."""
    draw = np.random.default_rng(0)
    rare = 1 / np.arange(1, 20_001)
    rows = []
    for length in draw.integers(5, 55, 700):
        src, other = draw.choice(len(rare), (2, length), p=rare / rare.sum())
        tgt = np.where(draw.random(length) < 0.3, src, other)
        rows.append((" ".join(f"s{word}" for word in src), " ".join(f"t{word}" for word in tgt)))
    [found] = examined(write(tmp_path, rows))
    assert not found.stretches


def test_damage_of_a_fifth_of_the_lines_is_found(pairs, tmp_path):
    """Each kind of damage is that of a twenty-fifth of the lines."""
    places = random.Random(5).sample(range(len(pairs)), len(pairs) // 5)
    kinds = dict(zip(places, cycle(DAMAGE), strict=False))
    rows = [DAMAGE[kinds[place]](*row) if place in kinds else row for place, row in enumerate(pairs)]
    [found] = examined(write(tmp_path, rows))
    for kind in DAMAGE:
        assert has(found.bits[[place for place in places if kinds[place] == kind]], kind).mean() >= 0.9, kind
    sound = [place for place in range(len(pairs)) if place not in kinds]
    assert has(found.bits[sound], *ON_BY_DEFAULT).mean() <= 0.06


def test_faults_of_little_text_are_found(pairs, tmp_path):
    rows = pairs[:250]
    rows[20:40] = [(tgt, src) for src, tgt in rows[20:40]]
    rows[120:140] = [(src, "Привет, как дела у вас сегодня?") for src, _ in rows[120:140]]
    [found] = examined(write(tmp_path, rows))
    assert has(found.bits[20:40], "swapped").mean() >= 0.9
    assert has(found.bits[120:140], "script").all()
    assert has(found.bits[40:120], *ON_BY_DEFAULT).mean() <= 0.02


def test_what_is_not_looked_for_is_said(pairs, tmp_path):
    rows = [*pairs[:99], (pairs[99][0], "Привет, друзья мои")]
    ended = run_composed("prepare", f"data.path={write(tmp_path, rows)}", *LANGS)
    assert "script: 1 (1.00%)" in ended.out
    assert (
        "which lines belong together; not looked for: swapped, untranslated, foreign, shifted," in ended.out
    )
    ended = run_composed("prepare", f"data.path={write(tmp_path, pairs[:99])}", *LANGS)
    assert "no problems found" not in ended.out


def test_shifted_stretches_are_found_and_named(pairs, tmp_path):
    stretches = [(200, 500, 1), (800, 1100, -2)]
    targets = [tgt for _, tgt in pairs]
    for first, last, shift in stretches:
        targets[first:last] = np.roll(np.array(targets[first:last], object), shift).tolist()
    [found] = examined(write(tmp_path, [(src, tgt) for (src, _), tgt in zip(pairs, targets, strict=True)]))
    for stretch, (first, last, shift) in zip(found.stretches, stretches, strict=True):
        assert stretch.shift == shift
        assert abs(stretch.first - first) <= 5
        assert abs(stretch.last - last) <= 5


@pytest.mark.parametrize("shift", [1, -2])
def test_text_that_is_shifted_as_a_whole_accuses_no_other_split(shift, pairs, tmp_path):
    rows = [(src, pairs[number - shift][1]) for number, (src, _) in enumerate(pairs[:600])]
    write(tmp_path, pairs[700:900], "val")
    val, train = examined(write(tmp_path, rows))
    assert train.stretches == [(0, 599, shift)]
    assert not has(val.bits, *ON_BY_DEFAULT).any()


def test_text_of_which_nothing_is_left_has_no_recipe(tmp_path):
    write(write(tmp_path, [("a", "a")] * 9), [("b", "x")], "val")
    ended = run_composed("prepare", f"data.path={tmp_path}", *LANGS)
    assert "train.py" not in ended.out
    assert "repair the text" in ended.out


def test_lines_of_no_use_to_each_other_are_not_called_shifted(pairs, tmp_path):
    """Sentences beside others, and a sorted list of words beside words of their sentences."""
    texts = {
        "others": [(src, pairs[number - 700][1]) for number, (src, _) in enumerate(pairs)],
        "words": sorted({(src.split()[-2], tgt.split()[0]) for src, tgt in pairs}),
    }
    for name, rows in texts.items():
        [found] = examined(write(tmp_path / name, rows))
        assert not found.stretches, name
        assert not found.is_compared, name


def test_repeated_and_held_out_pairs(pairs, tmp_path):
    src, tgt = pairs[7]
    longer = max(pairs[:200], key=lambda pair: len(pair[0].split()))
    near = " ".join(["Xy", *longer[0].upper().split()[1:]]) + " !"
    rows = [*pairs[:200], pairs[3], (pairs[4][0], "khác"), ("", "gì"), (near, "gì")]
    write(tmp_path, [*pairs[300:303], (src, tgt), longer], "val")
    write(tmp_path, rows)
    train = examined(tmp_path)[-1]
    assert np.flatnonzero(has(train.bits, "duplicate")).tolist() == [200]
    assert np.flatnonzero(has(train.bits, "targets")).tolist() == [201]
    assert np.flatnonzero(has(train.bits, "empty")).tolist() == [202]
    assert {7, pairs.index(longer)} == set(np.flatnonzero(has(train.bits, "held_out")))
    assert {7, pairs.index(longer), 203} <= set(np.flatnonzero(has(train.bits, "near")).tolist())


def test_other_targets_are_different_ones(tmp_path):
    write(tmp_path, [("a", ""), ("a", "x"), ("a", "x"), ("a", "y"), ("a", "z")])
    [split] = find_splits(compose("prepare", f"data.path={tmp_path}", *LANGS).data)
    for bound, found in ((1, [3, 4]), (2, [4])):
        examine([split], BOUNDS | {"targets": bound}, 1)
        assert np.flatnonzero(has(split.bits, "targets")).tolist() == found


def read(folder: Path, split: str, columns=None) -> list:
    languages = Languages("en", "vi", columns)
    files = find(folder, split, languages)
    return list(read_rows(files.shards, languages))


def test_a_copy_is_whole_and_leaves_held_out_lines_alone(pairs, tmp_path):
    text, output = tmp_path / "text", tmp_path / "made" / "copy"
    write(text, [*pairs[:190], pairs[0], ("same", "same"), ("", "x"), pairs[400], pairs[402]])
    write(text, [pairs[400], pairs[401], pairs[401]], "test_2016")
    write(text, [pairs[402]], "test_2017")
    write(text, pairs[410:420], "val")
    ended = run_composed(
        *("prepare", f"data.path={text}", *LANGS, f"output={output}", "rules.equal=false"),
        *(f"report={tmp_path / 'r.json'}", f"page={tmp_path / 'p.html'}"),
    )
    assert ended.status == 0, ended.err
    assert read(output, "train") == [*pairs[:190], ("same", "same")]
    for name in (f"test_{year}.{lang}" for year in (2016, 2017) for lang in ("en", "vi")):
        assert (output / name).read_bytes() == (text / name).read_bytes()
    dropped = [line.split("\t") for line in (output / "dropped.tsv").read_text().splitlines()[1:]]
    assert dropped == [
        ["line 191", "duplicate"],
        ["line 193", "empty"],
        ["line 194", "held_out"],
        ["line 195", "held_out"],
    ]
    report = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert report["copy"] == {"train": 191, "duplicate": 1, "empty": 1, "held_out": 2}
    assert report["splits"]["train"]["pairs"] == 195
    [example] = report["splits"]["train"]["problems"]["duplicate"]["examples"]
    assert example == {"place": "line 191", "src": pairs[0][0], "tgt": pairs[0][1]}
    assert "duplicate: 1 (0.51%)" in ended.out
    page = (tmp_path / "p.html").read_text("utf-8")
    assert page.count("<img ") == 2
    assert "<script" not in page
    assert "http:" not in re.sub(r'"data:[^"]*"', "", page)


def counted(characters: int) -> Counts:
    counts = Counts(("words", "words"))
    counts.add(["a"], ["b"])
    counts.characters[:] = characters // 2, characters - characters // 2
    return counts


@pytest.mark.parametrize(
    ("number", "name"),
    [(1, "tiny"), (250_000, "tiny"), (250_001, "small"), (800_001, "medium"), (10**9, "medium")],
)
def test_the_recipe_is_a_command_that_composes(number, name):
    data = compose("prepare", "data.path=a b", *LANGS, "data.columns=[en,vi]", "data.bad_rows=skip").data
    script, *overrides = shlex.split(
        write_recipe(counted(number), 90, data, "a b")["command"].partition("train.py ")[2]
    )
    assert script == f"experiment=own_text_{name}"
    cfg = compose("train", script, *overrides, "run_dir=x", "name=x")
    assert (cfg.trainer.max_time, cfg.trainer.max_epochs) == ("00:01:30:00", -1)
    assert (cfg.data.path, cfg.data.src_lang, list(cfg.data.columns)) == ("a b", "en", ["en", "vi"])
    assert cfg.optimizer._target_ == "nmt.training.muon.Muon"
    assert cfg.data.tokenizer.vocab_size == 8000


@pytest.mark.parametrize(
    ("pairs", "limits"),
    [
        ([("a b c d e f", "g h i j")] * 9, {}),
        ([("ab " * 400, "cd " * 350)] * 9, {"max_length": 1024}),
        ([("ab " * 600, "cd " * 600)] * 9, {"max_length": 2048, "max_tokens": 2048}),
        ([("ab " * 60, "cd " * 10)] * 9, {"max_ratio": 9}),
        ([("ab " * 60, "cd " * 10)] + [("ab " * 60, "cd " * 50)] * 30, {}),  # a few may fall out
    ],
)
def test_the_recipe_keeps_text_that_the_default_limits_leave_out(pairs, limits):
    counts = Counts(("words", "words"))
    counts.add(*zip(*pairs, strict=True))
    recipe = write_recipe(counts, 9, compose("prepare", "data.path=a", *LANGS).data, "a")
    cfg = compose("train", *shlex.split(recipe["command"].partition("train.py ")[2]), "run_dir=x", "name=x")
    usual = {"max_length": 128, "max_ratio": 4, "max_tokens": 1024}
    assert {name: cfg.data[name] for name in usual} == usual | limits
    assert len([each for each in recipe["reasons"] if each.startswith("data.max_")]) == bool(limits)


def test_words_of_a_long_line_are_counted():
    counts = Counts(("words", "words"))
    counts.add(["a " * 5_000], ["b"])
    assert counts.totals.tolist() == [5_000, 1]


def test_languages_without_spaces_have_another_ratio():
    counts = Counts(("words", "characters"))
    counts.add(["The dog sleeps in the garden ."] * 9, ["狗在花园里睡觉。"] * 9)
    assert counts.ratio_of_pieces(0.95) < 2


def test_a_folder_without_splits_is_split_by_blocks(pairs, tmp_path):
    rows = [{"en": src, "vi": tgt, "alignment": "0-0"} for src, tgt in pairs[:400]]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    made = []
    for name in ("a", "b"):
        ended = run_composed(
            "prepare", f"data.path={tmp_path / 'text'}", *LANGS, f"output={tmp_path / name}", "seed=4"
        )
        assert ended.status == 0, ended.err
        assert f"experiment=own_text_tiny data.path={tmp_path / name}" in ended.out
        made.append({split: read(tmp_path / name, split) for split in ("train", "val", "test")})
        characters = sum(len(line) for row in made[-1]["train"] for line in row[:2])
        assert f"train on these {characters:,} characters" in ended.out
    assert made[0] == made[1]
    assert sorted(chain(*made[0].values())) == sorted((*pair, "0-0") for pair in pairs[:400])
    places = {pair: number for number, pair in enumerate(pairs)}
    for split in ("val", "test"):
        lines = [places[row[:2]] for row in made[0][split]]
        assert len(lines) == 40
        assert sum(after - before != 1 for before, after in pairwise(lines)) <= 3
    splits = read_files(tmp_path / "a", src_lang="en", tgt_lang="vi", cache_dir=tmp_path / "cache")
    assert {name: len(each) for name, each in splits.items()} == {"train": 320, "val": 40, "test": 40}


def test_a_missing_val_is_taken_from_the_training_text(pairs, tmp_path):
    text, output = write(tmp_path / "text", pairs[:100]), tmp_path / "copy"
    write(text, pairs[100:120], "test")
    given = ("prepare", f"data.path={text}", *LANGS, "rules.truncated=false", "rules.mismatched=false")
    assert "val is missing" in run_composed(*given).out
    ended = run_composed(*given, f"output={output}")
    assert ended.status == 0, ended.err
    assert "experiment=own_text_tiny" in ended.out
    made = {split: read(output, split) for split in ("train", "val", "test")}
    assert {name: len(rows) for name, rows in made.items()} == {"train": 90, "val": 10, "test": 20}
    assert sorted(made["train"] + made["val"]) == sorted(pairs[:100])
    assert made["test"] == pairs[100:120]


def test_what_was_asked_for_is_written_though_nobody_reads_the_report(pairs, tmp_path):
    text, output, page = tmp_path / "text", tmp_path / "copy", tmp_path / "page.html"
    longer = [(200 * f"{src} ", tgt) for src, tgt in pairs[:9]]  # than the picture counts
    write(text, [*pairs[9:60], *longer])
    with unread() as stdout:
        ended = run("prepare", f"data.path={text}", *LANGS, f"output={output}", f"page={page}", stdout=stdout)
    assert ended.status == 0, ended.err
    assert {each.name for each in output.iterdir()} >= {"train.en", "val.en", "test.en"}
    assert page.read_text("utf-8").endswith("</html>\n")


def test_links_keep_their_direction(pairs, tmp_path):
    """In the files, i counts words of the language that comes first in data.columns."""
    write(tmp_path / "text", [("a b", "x"), *pairs[:30]])
    (tmp_path / "text" / "train.align").write_text("0-1\n" + "0p0\n" * 30)
    ended = run_composed(
        *(
            "prepare",
            f"data.path={tmp_path / 'text'}",
            *LANGS,
            "data.columns=[vi,en]",
            f"output={tmp_path / 'copy'}",
        ),
    )
    assert ended.status == 0, ended.err
    columns = ("vi", "en")
    kept = [row for split in ("train", "val", "test") for row in read(tmp_path / "copy", split, columns)]
    assert sorted(kept) == sorted(read(tmp_path / "text", "train", columns))


def test_languages_without_spaces_are_counted_in_characters(tmp_path):
    for lang, text in (("en", "a dog\n"), ("zh", "一只狗\n")):
        (tmp_path / f"train.{lang}").write_text(text, "utf-8")
    ended = run_composed("prepare", f"data.path={tmp_path}", "data.src_lang=en", "data.tgt_lang=zh")
    assert "zh: 3 characters, 3 characters; Han or Kana 100.0%" in ended.out
    assert "train: 1 pairs" in ended.out


def test_blank_lines_are_only_blank(tmp_path):
    write(tmp_path, [("", " ")] * 1200)
    [found] = examined(tmp_path)
    assert set(found.bits.tolist()) == {int(BIT["empty"])}
    refused(
        run_composed("prepare", f"data.path={tmp_path}", *LANGS, f"output={tmp_path}x"), "no pair", "rules."
    )
    assert not Path(f"{tmp_path}x").exists()


FAULTS = {
    "no folder": (["data.path=nowhere"], ["nowhere", "data.path"]),
    "no text": (["data.path={made}"], ["train", "it is empty"]),
    "lines differ": (["data.path={uneven}"], ["train.en has 2", "train.vi has 1"]),
    "binary": (["data.path={binary}"], ["train.vi, line 1", "UTF-8"]),
    "UTF-16 on one side": (["data.path={utf16}"], ["train.vi, line 1", "UTF-8"]),
    "within": (["data.path={text}", "output={text}/new"], ["output=", "data.path="]),
    "the text itself": (["data.path={text}", "output={text}"], ["output=", "data.path="]),
    "around": (["data.path={text}", "output={text}/.."], ["output=", "data.path="]),
    "not empty": (["data.path={text}", "output={uneven}"], ["output=", "not empty"]),
    "a bound of a rule without one": (["data.path={text}", "rules.empty=3"], ["rules.empty=3"]),
    "a small bound": (["data.path={text}", "rules.ratio=0.5"], ["rules.ratio=0.5"]),
    "an unknown rule": (["data.path={text}", "rules.rato=2"], ["rules.rato"]),
    "few pairs": (["data.path={text}", "output={made}"], ["2 pairs", "val and test"]),
    "nothing left": (
        ["data.path={same}", "output={made}/new"],
        ["no pair", "equal leaves out 12", "rules.equal=false"],
    ),
    "no JSON": (["data.path={text}", "report=r.txt"], ["report=", ".json"]),
    "a report over the text": (
        ["data.path={text}", "report={text}/train.json"],
        ["report=", "folder of the text"],
    ),
    "a page in the text": (
        ["data.path={text}", "page={text}/new/page.html"],
        ["page=", "folder of the text"],
    ),
    "the folder one is in": (["data.path={text}", "output=."], ["output=.", "the folder you are in"]),
}


@pytest.mark.parametrize(("overrides", "fragments"), FAULTS.values(), ids=FAULTS)
def test_faults_are_one_line(overrides, fragments, tmp_path):
    places = {name: tmp_path / name for name in ("text", "uneven", "binary", "utf16", "same", "made")}
    write(places["text"], [("a", "x"), ("b", "y")])
    write(places["uneven"], [("a", "x")])
    write(places["same"], [(f"a {number}", f"a {number}") for number in range(12)] + [("a", "")])
    (places["uneven"] / "train.en").write_text("a\nb\n")
    write(places["binary"], [("a", "x")])
    (places["binary"] / "train.vi").write_bytes(bytes([0xFF, 0xFE, 0x0A]))
    write(places["utf16"], [("a", "x"), ("b", "y")])
    (places["utf16"] / "train.vi").write_bytes("x\ny\n".encode("utf-16"))
    places["made"].mkdir()
    given = [each.format(**places) for each in overrides]
    refused(run_composed("prepare", *given, *LANGS), *fragments)
    assert not list(places["made"].iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(places)


def test_the_language_of_most_lines_is_that_of_the_side():
    """Whichever of two parts of a side looks more usual, the rarer is the other language."""
    draw = random.Random(1)
    alphabets = {"source": "abcdefgh", "most": "ijklmnop", "few": "qrst"}

    def lines(kind: str, number: int) -> list[str]:
        words = ["".join(draw.choices(alphabets[kind], k=4)) for _ in range(40)]
        return [" ".join(draw.choices(words, k=8)) for _ in range(number)]

    for few in ("qrst", "qrstuvwxyz"):
        alphabets["few"] = few
        target = Codes(lines("most", 240) + lines("few", 60)).trigrams
        odds = LanguageOdds.learn(Codes(lines("source", 300)).trigrams, target).foreign[1]
        assert odds is not None
        is_other = log_odds(target, odds) > 0
        assert not is_other[:240].any()
        assert is_other[240:].all()


def test_a_month_in_thai_is_no_longer_than_a_few_words():
    lines = ("May", "พฤษภาคม", "two words", "GIF ไม่รองรับ", "")
    assert Codes(lines).num_words.tolist() == pytest.approx([1, 7 / 3, 2, 1 + 9 / 3, 0])


def test_word_pairs_that_share_a_slot_have_a_chance_of_at_most_one(monkeypatch):
    monkeypatch.setattr("nmt.preparation.word_pairs._MOST_SLOTS", 2**12)
    draw = np.random.default_rng(0)
    src, tgt = (
        Codes([" ".join(f"w{word}" for word in draw.zipf(1.3, 12)) for _ in range(300)]) for _ in "ab"
    )
    assert WordPairs.learn(src.words, tgt.words).chances.max() <= 1
