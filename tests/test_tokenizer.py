"""SentencePiece wrapped: text survives a round trip, faults say what to do, and pieces find their words."""

import io
import pickle
import re

import pytest
from datasets.fingerprint import Hasher
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from nmt.data.tokenizer import Tokenizer
from nmt.data.unknown_characters import UnknownCharacters, unknown_message
from nmt.errors import UserError
from tests.small import SPECIAL_IDS, own_model

ENGLISH = [
    f"{who} {does} {what}"
    for who in ("the red cat", "an old dog", "she", "my small brother", "one fine officer")
    for does in ("sees", "has bought", "reads about", "does not know")
    for what in ("a big house", "the new book", "yellow flowers", "his lazy junk", "every zebra")
]
VIETNAMESE = [
    f"{who} {does} {what}"
    for who in ("con mèo đỏ", "một con chó già", "cô ấy", "em trai nhỏ của tôi")
    for does in ("nhìn thấy", "đã mua", "đọc về", "không biết")
    for what in ("ngôi nhà lớn", "quyển sách mới", "những bông hoa vàng", "mọi người")
]
OPTIONS = {"model_type": "unigram", "joint": True, "vocab_size": 85, "character_coverage": 1.0}


def pieces_of(processor, ids):
    """The text of each piece."""
    return [processor.id_to_piece(int(each)) for each in ids]


def train(**changes) -> Tokenizer:
    return Tokenizer.train(ENGLISH, VIETNAMESE, **(OPTIONS | changes))


@pytest.fixture(scope="module")
def joint() -> Tokenizer:
    return train()


def brought_along(path, **changes):
    """A SentencePiece model as a user may have trained it, written to `path`."""
    path.write_bytes(own_model(ENGLISH + VIETNAMESE, **({"vocab_size": 85} | changes)))
    return path


@pytest.fixture(scope="module")
def bytes_too() -> Tokenizer:
    return Tokenizer(own_model(ENGLISH + VIETNAMESE, byte_fallback=True, vocab_size=340, **SPECIAL_IDS))


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@pytest.mark.parametrize("is_joint", [True, False])
def test_text_survives_encoding_and_decoding(model_type, is_joint):
    size = 85 if is_joint else 50
    tokenizer = train(model_type=model_type, joint=is_joint, vocab_size=size)
    assert (tokenizer.src_vocab_size, tokenizer.tgt_vocab_size) == (size, size)
    assert tokenizer.joint == is_joint
    assert tokenizer.decode(tokenizer.encode_target(VIETNAMESE)) == VIETNAMESE
    for line, ids in zip(ENGLISH, tokenizer.encode_source(ENGLISH), strict=True):
        assert ids[-1] == tokenizer.eos_id == 3
        assert not {0, 1, 2, 3} & set(ids[:-1])
        assert "".join(pieces_of(tokenizer._source, ids[:-1])).replace("▁", " ").strip() == line


@pytest.mark.parametrize("model_type", ["word", "char"])
@pytest.mark.parametrize("is_joint", [True, False])
def test_words_and_characters_are_pieces(model_type, is_joint):
    tokenizer = train(model_type=model_type, joint=is_joint, vocab_size=500)
    sides = [
        set(" ".join(lines)) if model_type == "char" else set(" ".join(lines).split())
        for lines in (ENGLISH, VIETNAMESE)
    ]
    if is_joint:
        sides = [sides[0] | sides[1]] * 2
    assert [tokenizer.src_vocab_size, tokenizer.tgt_vocab_size] == [4 + len(side) for side in sides]
    assert train(model_type=model_type, joint=is_joint, vocab_size=12).tgt_vocab_size == 12
    assert tokenizer.decode(tokenizer.encode_target(VIETNAMESE)) == VIETNAMESE
    for line, ids in zip(ENGLISH, tokenizer.encode_source(ENGLISH), strict=True):
        marked = [f"▁{word}" for word in line.split()]
        expected = list("".join(marked)) if model_type == "char" else marked
        assert tokenizer.source_pieces(ids) == [*expected, "</s>"]


NEIGHBOURS = [
    "the zebra quagga mat",
    "zebra\u3000quagga",
    "  gnu the  gnu gnu ",
    "ﬁg ½x a¨b x",
    "the",
    "",
    "¶ gnu",
    "▁gnu ▁",
]


@pytest.mark.parametrize("is_joint", [True, False])
def test_neighbouring_unknown_words_are_a_piece_each(is_joint):
    tokenizer = train(model_type="word", joint=is_joint, vocab_size=20)
    for processor, encode, align in (
        (tokenizer._source, tokenizer.encode_source, tokenizer.align_source),
        (tokenizer._target, tokenizer.encode_target, tokenizer.align_target),
    ):
        for line, ids in zip(NEIGHBOURS, encode(NEIGHBOURS), strict=True):
            words = processor.normalize(line).strip("▁").split("▁")
            assert ids == [*(processor.piece_to_id(f"▁{word}") for word in words if word), 3]
            assert align(line)[0] == ids
    assert tokenizer.align_source("quux the zebra quagga")[1] == [0, 1, 2, 3, -1]
    assert tokenizer.align_source("a¨b ½x quux")[1] == [0, 0, 1, 2, -1]  # two words once normalised
    known = tokenizer.target_pieces([4])[0].strip("▁")
    [ids] = tokenizer.encode_target([f"quux gnu {known} gnu"])
    assert tokenizer.decode([ids])[0].split() == ["⁇", "⁇", known, "⁇"]
    assert tokenizer.target_words(ids) == [0, 1, 2, 3, -1]
    assert tokenizer.unknown_characters(["the quux Zebra", "the"]) == [["quux", "Zebra"]]


def test_a_model_of_words_that_was_brought_along_does_not_join_them(tmp_path):
    file = brought_along(tmp_path / "own.model", model_type="word", vocab_size=40, **SPECIAL_IDS)
    assert Tokenizer.from_models(file).encode_source(["quux gnu the"])[0][:2] == [1, 1]


def test_text_stays_as_it_is_without_normalization():
    text = ["ｆｕｌｌ，（cá）…", "a\u0301 b\u200cc"]
    options = OPTIONS | {"model_type": "bpe", "vocab_size": 30}
    tokenizer = Tokenizer.train(text * 9, [], **options, normalization="identity")
    assert tokenizer.decode(tokenizer.encode_target(text)) == text
    usual = Tokenizer.train(text * 9, [], **options)
    assert usual.decode(usual.encode_target(text)) == ["full,(cá)...", "á b c"]
    assert (tokenizer.count_rewritten(text), usual.count_rewritten([*text, "full  b"])) == (0, 2)


def test_special_ids_are_named(joint):
    assert (joint.pad_id, joint.unk_id, joint.bos_id, joint.eos_id) == (0, 1, 2, 3)
    assert pieces_of(joint._target, [0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_blank_lines_are_the_end_of_sentence_alone(joint):
    assert joint.encode_source(["", "   ", "\t"]) == [[3], [3], [3]]
    assert joint.encode_source([]) == []
    assert joint.align_source(" ") == ([3], [-1])
    assert joint.decode([[3], [], [0, 2]]) == ["", "", ""]
    assert joint.target_words([3]) == [-1]


def test_decoding_stops_at_the_end_and_leaves_special_ids_out(joint):
    [ids] = joint.encode_target(["con chó"])
    assert joint.decode([[2, *ids, *ids, 0, 0]]) == ["con chó"]


def test_unknown_pieces_read_as_sentencepiece_reads_them(joint):
    [ids] = joint.encode_target(["con ж"])
    assert 1 in ids
    assert joint.decode([ids]) == ["con  ⁇ "]


@pytest.mark.parametrize("is_joint", [True, False])
def test_unknown_characters_are_found_by_line(is_joint, bytes_too):
    tokenizer = train(joint=is_joint, vocab_size=85 if is_joint else 50)
    lines = ["the cat", "the 猫は cat", "", "ж", "ﬁne\u3000cat", "a🇫🇷b"]
    assert tokenizer.unknown_characters(lines) == [["猫", "は"], ["ж"], ["🇫", "🇷"]]
    assert tokenizer.unknown_characters(["nhà ж nhỏ", "nhà"], is_target=True) == [["ж"]]
    assert tokenizer.unknown_characters(["đỏ"]) == ([] if is_joint else [["đ", "ỏ"]])
    assert bytes_too.unknown_characters(lines) == []
    cased = train(joint=is_joint, vocab_size=80 if is_joint else 48, lowercase=True)
    assert cased.unknown_characters(["THE CAT", "Ж"]) == [["ж"]]


def test_a_character_that_is_unknown_in_part_is_named(caplog):
    lines = ["ten m s .", "2 c o 1 me"] * 9
    tokenizer = Tokenizer.train(lines, lines, **OPTIONS | {"model_type": "bpe", "vocab_size": 24})
    with UnknownCharacters(tokenizer) as unknown:  # they are m∕s, c/o and 1⁄2 once normalised
        unknown.count(["ten ㎧ .", "me ℅ me", "½", "2"], "lines")
    assert "3 of 4 lines hold characters that the vocabulary does not know (㎧, ℅, ½)" in caplog.text


def test_a_message_counts_lines_and_shows_some_characters():
    assert unknown_message(2, 1_000, "lines", "猫はは寝").startswith(
        "2 of 1,000 lines hold characters that the vocabulary does not know (猫, は, 寝): "
    )
    assert "3 lines hold words that the vocabulary does not know (zebra, ж): " in unknown_message(
        2, 3, "lines", ["zebra", "ж"]
    )
    assert "(a, U+0085)" in unknown_message(2, 2, "lines", "a\x85")
    assert "(a, b, c, d, e, f, g, h, i, j, …)" in unknown_message(1, 1, "lines", "abcdefghijkl")


def test_two_trainings_give_the_same_model():
    for model_type in ("unigram", "bpe"):
        first, second = (train(model_type=model_type, joint=False, vocab_size=50) for _ in range(2))
        assert pickle.dumps(first) == pickle.dumps(second)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@pytest.mark.parametrize("is_joint", [True, False])
def test_a_vocabulary_has_at_most_the_pieces_that_the_text_gives(model_type, is_joint):
    def largest(lines) -> int:
        with pytest.raises(RuntimeError, match=r"too high \(5000\).* value <= \d+") as error:
            SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=io.BytesIO(),
                **{"model_type": model_type, "vocab_size": 5000, "pad_id": 3, "minloglevel": 9},
            )
        return int(re.findall(r"\d+", str(error.value))[-1])

    sides = [ENGLISH + VIETNAMESE] * 2 if is_joint else [ENGLISH, VIETNAMESE]
    options = {"model_type": model_type, "joint": is_joint}
    bounded = train(**options, vocab_size=5000)
    assert [bounded.src_vocab_size, bounded.tgt_vocab_size] == [largest(lines) for lines in sides]
    assert pickle.dumps(bounded) == pickle.dumps(train(**options, vocab_size=5000))
    if is_joint:
        exact = train(**options, vocab_size=bounded.src_vocab_size)
        assert bounded.source_pieces(range(exact.src_vocab_size)) == exact.source_pieces(
            range(exact.src_vocab_size)
        )


def test_too_small_a_vocabulary_says_the_smallest_that_works():
    with pytest.raises(UserError, match=r"vocab_size=12: .* smaller than required_chars. 12 vs \d+") as error:
        train(vocab_size=12)
    smallest = int(re.findall(r"\d+", str(error.value))[-1])
    assert train(vocab_size=smallest).src_vocab_size == smallest
    with pytest.raises(UserError, match="smaller than"):
        train(vocab_size=smallest - 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 4}, "vocab_size=4: .*smaller than required"),
        ({"vocab_size": 0}, "vocab_size=0: "),
        ({"vocab_size": -7}, "vocab_size=-7: "),
        ({"model_type": "words"}, "model_type=words: choose one of unigram, bpe, word, char"),
        ({"character_coverage": 0.5}, "character_coverage.. >= 0.98"),
        ({"character_coverage": 1.5}, "character_coverage.. <= 1.0"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        train(**changes)


@pytest.mark.parametrize("lines", [[], [""], ["   ", "\t"], ["▁"]])
def test_text_without_a_word_is_refused(lines):
    with pytest.raises(UserError, match="the training text is empty"):
        Tokenizer.train(lines, lines, **OPTIONS)
    with pytest.raises(UserError, match="the target side is empty"):
        Tokenizer.train(ENGLISH, lines, **(OPTIONS | {"joint": False, "vocab_size": 50}))


def test_training_prints_nothing(capfd):
    train()
    train(vocab_size=9999)
    with pytest.raises(UserError):
        train(vocab_size=4)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("is_joint", [True, False])
def test_saved_and_loaded_is_the_same(tmp_path, is_joint):
    tokenizer = train(joint=is_joint, vocab_size=85 if is_joint else 50)
    tokenizer.save(tmp_path / "run" / "tokenizer")
    names = ["joint.model"] if is_joint else ["src.model", "tgt.model"]
    assert sorted(file.name for file in (tmp_path / "run" / "tokenizer").iterdir()) == names
    loaded = Tokenizer.load(tmp_path / "run" / "tokenizer")
    assert loaded.joint == is_joint
    for each in (loaded, pickle.loads(pickle.dumps(tokenizer))):
        assert pickle.dumps(each) == pickle.dumps(tokenizer)
        assert each.encode_source(ENGLISH) == tokenizer.encode_source(ENGLISH)
        assert each.encode_target(VIETNAMESE) == tokenizer.encode_target(VIETNAMESE)
    assert Hasher.hash(loaded) == Hasher.hash(tokenizer)


@pytest.mark.parametrize("is_joint", [True, False])
def test_a_tokenizer_that_lower_cases_reads_as_if_there_were_no_case(tmp_path, is_joint):
    upper, vietnamese = [line.upper() for line in ENGLISH], [line.lower() for line in VIETNAMESE]
    options = OPTIONS | {"joint": is_joint, "vocab_size": 80 if is_joint else 48}
    tokenizer = Tokenizer.train(upper, VIETNAMESE, **options, lowercase=True)
    plain = Tokenizer.train([line.lower() for line in upper], vietnamese, **options)
    lower = [line.lower() for line in upper]
    assert tokenizer.encode_source(upper) == tokenizer.encode_source(lower) == plain.encode_source(lower)
    assert tokenizer.align_source(upper[0]) == plain.align_source(lower[0])
    assert tokenizer.align_target("NHÀ Nhỏ") == plain.align_target("nhà nhỏ")
    assert tokenizer.decode(tokenizer.encode_target(["Nhà NHỎ"])) == ["nhà nhỏ"]
    tokenizer.save(tmp_path)
    for each in (Tokenizer.load(tmp_path, lowercase=True), pickle.loads(pickle.dumps(tokenizer))):
        assert each.encode_source(upper) == tokenizer.encode_source(upper)
    assert Tokenizer.load(tmp_path).encode_source(upper) != tokenizer.encode_source(upper)
    assert Hasher.hash(tokenizer) != Hasher.hash(plain)


def test_a_missing_model_is_named(tmp_path, joint):
    with pytest.raises(UserError, match=r"gone/src.model: cannot read .*No such file"):
        Tokenizer.load(tmp_path / "gone")
    train(joint=False, vocab_size=50).save(tmp_path)
    (tmp_path / "tgt.model").unlink()
    with pytest.raises(UserError, match=r"tgt.model: cannot read .*No such file"):
        Tokenizer.load(tmp_path)
    with pytest.raises(UserError, match=r"nowhere.model: cannot read .*No such file"):
        Tokenizer.from_models(tmp_path / "nowhere.model")


@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b"garbage", lambda b: b[: len(b) // 2], lambda b: b[:-100]]
)
def test_a_broken_model_is_named(tmp_path, joint, damage):
    joint.save(tmp_path)
    file = tmp_path / "joint.model"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UserError, match=r"joint.model is broken or no SentencePiece model"):
        Tokenizer.load(tmp_path)


def test_special_ids_of_a_model_brought_along_are_kept(tmp_path):
    file = brought_along(tmp_path / "own.model", unk_id=0, bos_id=1, eos_id=2, pad_id=3)
    tokenizer = Tokenizer.from_models(str(file))
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (3, 0, 1, 2)
    [ids] = tokenizer.encode_target(["con chó"])
    assert ids[-1] == 2
    assert tokenizer.decode([[1, *ids, 3, 3]]) == ["con chó"]
    assert tokenizer.target_words([1, *ids, 3])[0] == -1
    assert tokenizer.target_words([1, *ids, 3])[-2:] == [-1, -1]


def test_a_model_without_padding_is_refused_with_the_remedy(tmp_path):
    file = brought_along(tmp_path / "own.model")  # SentencePiece's own defaults have no padding
    with pytest.raises(UserError, match=r"own.model has no pad_id: .*--pad_id=0 --unk_id=1"):
        Tokenizer.from_models(file)


def test_two_models_must_agree_on_the_special_ids(tmp_path):
    one = brought_along(tmp_path / "one.model", pad_id=3)
    two = brought_along(tmp_path / "two.model", **SPECIAL_IDS)
    with pytest.raises(UserError, match=r"one.model and .*two.model: .* same special ids"):
        Tokenizer.from_models(one, two)
    assert not Tokenizer.from_models(two, two).joint


# From pieces to words. Each case: text, then (word, characters of the text that its pieces cover).


def groups(tokenizer, text):
    """Piece labels by word, as `align_source` groups them."""
    ids, words = tokenizer.align_source(text)
    assert ids == tokenizer.encode_source([text])[0]
    assert (ids[-1], words[-1]) == (tokenizer.eos_id, -1)
    assert words[:-1] == sorted(words[:-1])
    result = {}
    for label, word in zip(pieces_of(tokenizer._source, ids[:-1]), words, strict=False):
        result.setdefault(word, []).append(label)
    return {word: "".join(labels) for word, labels in result.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the cat", {0: "▁the", 1: "▁cat"}),
        ("  the   cat  ", {0: "▁the", 1: "▁cat"}),
        ("con mèo đỏ", {0: "▁con", 1: "▁mèo", 2: "▁đỏ"}),
        (
            "con me\u0300o đo\u0309",
            {0: "▁con", 1: "▁mèo", 2: "▁đỏ"},
        ),  # decomposed: offsets are of the original
        ("žoe", {0: "▁<unk>oe"}),
        ("a ﬁne oﬃce", {0: "▁a", 1: "▁fine", 2: "▁office"}),  # ligatures widen
        ("the\u3000cat", {0: "▁the", 1: "▁cat"}),
        ("the\u00a0cat\u2028dog", {0: "▁the", 1: "▁cat", 2: "▁dog"}),  # str.split splits there too
        ("the \u200b cat", {0: "▁the", 2: "▁cat"}),  # the middle word is removed by normalisation
        ("the cat \u200b", {0: "▁the", 1: "▁cat"}),
        ("the\u200bcat dog", {0: "▁the▁cat", 1: "▁dog"}),  # one word of the text, two of the normalised text
        ("the ж😀 cat", {0: "▁the", 1: "▁<unk>", 2: "▁cat"}),
    ],
)
def test_pieces_find_the_words_of_the_text_as_given(joint, text, expected):
    assert groups(joint, text) == expected


def test_bytes_join_the_word_they_are_in(bytes_too):
    grin = "<0xF0><0x9F><0x98><0x80>"
    assert groups(bytes_too, "the 😀 cat") == {0: "▁the", 1: f"▁{grin}", 2: "▁cat"}
    assert groups(bytes_too, "a😀 ж the") == {0: f"▁a{grin}", 1: "▁<0xD0><0xB6>", 2: "▁the"}


def test_a_lone_space_piece_belongs_to_the_piece_after_it():
    tokenizer = Tokenizer.train(["x y z"] * 3, ["x y z"] * 3, **(OPTIONS | {"vocab_size": 8}))
    ids, words = tokenizer.align_source("x yz")
    assert pieces_of(tokenizer._source, ids) == ["▁", "x", "▁", "y", "z", "</s>"]
    assert words == [0, 0, 1, 1, 1, -1]
    assert tokenizer.target_words(ids) == [0, 0, 1, 1, 1, -1]
    space, x = ids[:2]
    assert tokenizer.target_words([space, space, x, space]) == [0, 0, 0, 0]
    assert tokenizer.target_words([space, space]) == [-1, -1]  # no text, so no words
    assert tokenizer.decode([[space, space]])[0].split() == []


def test_an_unknown_piece_within_a_word_is_a_word_of_its_own_in_a_hypothesis(joint):
    [ids] = joint.encode_target(["nhжà"])
    [text] = joint.decode([ids])
    assert text.split()[1] == "⁇"
    assert joint.target_words(ids)[:-1] == sorted(joint.target_words(ids)[:-1])
    assert set(joint.target_words(ids)[:-1]) == {0, 1, 2}


def test_a_user_s_model_is_read_as_sentencepiece_itself_reads_it(tmp_path):
    file = brought_along(tmp_path / "own.model", pad_id=3, model_type="bpe")
    plain = SentencePieceProcessor(model_file=str(file))
    tokenizer = Tokenizer.from_models(file)
    assert tokenizer.encode_source(ENGLISH) == [[*ids, plain.eos_id()] for ids in plain.encode(ENGLISH)]
