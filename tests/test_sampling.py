"""Subword regularisation: the distribution of a draw, what it depends on, and the batches that are made of it."""

import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from datasets import Dataset

from nmt.data.datamodule import TranslationDataModule
from nmt.data.pair_sampler import PairSampler
from nmt.data.segmentation import Segmenter
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from tests.small import SPECIAL_IDS
from tests.test_tokenizer import ENGLISH, VIETNAMESE, brought_along, pieces_of, train

ROOT = Path(__file__).resolve().parents[1]
ALPHAS = {"bpe": 0.3, "unigram": 0.2}
LINES = [*ENGLISH[:30], "", "a", "zebra ж junk", "she  she"]
NUM_DRAWS = 4000


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train(model_type="bpe")


@pytest.fixture(scope="module")
def unigram() -> Tokenizer:
    return train()


@pytest.fixture(params=["bpe", "unigram"])
def case(request) -> tuple[Tokenizer, float]:
    return request.getfixturevalue(request.param), ALPHAS[request.param]


# The distribution: draws against every way to cut a word, counted out.


def scores_of(tokenizer: Tokenizer) -> dict[str, float]:
    """The pieces' scores: log probabilities of a unigram model, minus the rank of the merge of a BPE model."""
    pieces = range(4, tokenizer.src_vocab_size)
    return {tokenizer._source.id_to_piece(each): tokenizer._source.get_score(each) for each in pieces}


def drawn_here(tokenizer: Tokenizer, words: str, alpha: float) -> Counter[tuple[str, ...]]:
    """How often the last of the words is cut in each way, beside the others."""
    segmenter, _ = tokenizer.segmenters(alpha)
    [ids] = tokenizer.encode_source([words])
    draws = [segmenter.draw(ids, Random(seed)) for seed in range(NUM_DRAWS)]
    return Counter(last_word(pieces_of(tokenizer._source, each[:-1])) for each in draws)


def drawn_by_sentencepiece(tokenizer: Tokenizer, words: str, alpha: float) -> Counter[tuple[str, ...]]:
    options = {"enable_sampling": True, "alpha": alpha, "nbest_size": -1, "return_type": str}
    return Counter(last_word(tokenizer._source.encode(words, **options)) for _ in range(NUM_DRAWS))


def last_word(pieces: list[str]) -> tuple[str, ...]:
    return tuple(pieces[max(place for place, piece in enumerate(pieces) if piece[0] == "▁") :])


def assert_distributed(counts: Counter[tuple[str, ...]], expected: dict[tuple[str, ...], float]) -> None:
    """Nothing impossible, and each share within six standard deviations; the rarest count together."""
    assert math.isclose(sum(expected.values()), 1, abs_tol=1e-9)
    assert set(counts) <= set(expected)
    rare = {pieces for pieces, share in expected.items() if share * NUM_DRAWS < 10}
    cells = [(counts[pieces], share) for pieces, share in expected.items() if pieces not in rare]
    cells.append((sum(counts[pieces] for pieces in rare), sum(expected[pieces] for pieces in rare)))
    for count, share in cells:
        assert abs(count / NUM_DRAWS - share) <= 6 * math.sqrt(share * (1 - share) / NUM_DRAWS), cells


every_source = pytest.mark.parametrize("drawn", [drawn_here, drawn_by_sentencepiece])


def ways(text: str, pieces: dict[str, float]) -> list[tuple[str, ...]]:
    if not text:
        return [()]
    heads = [text[:end] for end in range(1, len(text) + 1) if text[:end] in pieces]
    return [(head, *rest) for head in heads for rest in ways(text[len(head) :], pieces)]


@every_source
@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_unigram_draws_in_proportion_to_p_to_the_alpha(unigram, alpha, drawn):
    """Kudo 2018, 3.1, over all ways."""
    scores = scores_of(unigram)
    found = ways("▁brother", scores)
    assert len(found) > 10
    weights = [math.exp(alpha * sum(scores[piece] for piece in way)) for way in found]
    expected = {way: weight / sum(weights) for way, weight in zip(found, weights, strict=True)}
    assert_distributed(drawn(unigram, "my small brother", alpha), expected)


Span = tuple[int, int]


def dropped(
    text: str,
    symbols: frozenset[Span],
    pairs: frozenset[tuple[Span, Span]],
    scores: dict[str, float],
    p: float,
) -> Counter[tuple[str, ...]]:
    """The distribution over the pieces of `text`, which stands cut into `symbols`, of BPE where each merge is left
    out for good with probability p. `pairs`: neighbours that were not tried yet."""
    live = [(left, right) for left, right in pairs if {left, right} <= symbols]
    if not live:
        return Counter({tuple(text[begin:end] for begin, end in sorted(symbols)): 1.0})
    best = max(live, key=lambda pair: (scores[text[pair[0][0] : pair[1][1]]], -pair[0][0]))
    left, right = best
    whole = (left[0], right[1])
    merged = symbols - {left, right} | {whole}
    new = {(other, whole) for other in merged if other[1] == whole[0]}
    new |= {(whole, other) for other in merged if other[0] == whole[1]}
    new = {(a, b) for a, b in new if text[a[0] : b[1]] in scores}
    total: Counter[tuple[str, ...]] = Counter()
    for share, state in ((p, (symbols, pairs - {best})), (1 - p, (merged, (pairs - {best}) | new))):
        for pieces, probability in dropped(text, *state, scores, p).items():
            total[pieces] += share * probability
    return total


@every_source
@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("word", ["brother", "bought", "flowers"])
def test_bpe_leaves_each_merge_out_with_probability_p(bpe, word, p, drawn):
    scores, text = scores_of(bpe), f"▁{word}"
    symbols = frozenset((place, place + 1) for place in range(len(text)))
    pairs = frozenset(
        ((place, place + 1), (place + 1, place + 2))
        for place in range(len(text) - 1)
        if text[place : place + 2] in scores
    )
    expected = dropped(text, symbols, pairs, scores, p)
    assert len(expected) > 3
    assert_distributed(drawn(bpe, f"my small {word}", p), expected)


# What a draw depends on, and what it keeps.


def draws(case: tuple[Tokenizer, float]) -> list[list[int]]:
    segmenter, _ = case[0].segmenters(case[1])
    return [segmenter.draw(ids, Random(seed)) for seed, ids in enumerate(case[0].encode_source(LINES))]


def test_a_draw_is_the_same_in_any_process(case, tmp_path):
    """Which SentencePiece's own, given the same seeds, is not."""
    tokenizer, alpha = case
    tokenizer.save(tmp_path)
    program = f"""
from random import Random
from nmt.data.tokenizer import Tokenizer
tokenizer = Tokenizer.load({str(tmp_path)!r})
segmenter, _ = tokenizer.segmenters({alpha})
for seed, ids in reversed([*enumerate(tokenizer.encode_source({LINES!r}))]):
    print(segmenter.draw(ids, Random(seed)))
"""
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert output.stdout.splitlines() == [str(ids) for ids in reversed(draws(case))]


def test_any_draw_is_the_same_text_and_its_pieces_find_their_words(case):
    tokenizer, alpha = case
    _, segmenter = tokenizer.segmenters(alpha)
    changed = 0
    for line in LINES:
        ids, words = tokenizer.align_target(line)
        for seed in range(20):
            drawn = segmenter.draw(ids, Random(seed))
            assert drawn[-1] == tokenizer.eos_id
            assert tokenizer.decode([drawn]) == tokenizer.decode([ids])
            origins = segmenter.origins(ids, drawn)
            for number, word in enumerate(line.split()):
                own = [piece for piece, origin in zip(drawn, origins, strict=True) if words[origin] == number]
                assert tokenizer.decode([own])[0].strip() == word.replace("ж", "⁇")
            changed += drawn != ids
    assert changed > 10 * len(LINES)


def test_what_is_no_plain_text_stays(tmp_path):
    for kind in ("bpe", "unigram"):
        options = {"byte_fallback": True, "user_defined_symbols": ["<2en>"], "vocab_size": 340}
        tokenizer = Tokenizer.from_models(
            brought_along(tmp_path / kind, model_type=kind, **SPECIAL_IDS, **options)
        )
        segmenter, _ = tokenizer.segmenters(0.5)
        [ids] = tokenizer.encode_source(["<2en> she 😀 zebra"])
        drawn = [segmenter.draw(ids, Random(seed)) for seed in range(50)]
        assert len({tuple(each) for each in drawn}) > 3
        for each in drawn:
            assert tokenizer.decode([each]) == ["<2en> she 😀 zebra"]
            assert pieces_of(tokenizer._source, each).count("<2en>") == 1


@pytest.mark.parametrize("alpha", [1e-12, 0.3])
def test_without_a_merge_left_out_the_pieces_are_sentencepieces(bpe, monkeypatch, alpha):
    segmenter, _ = bpe.segmenters(alpha)
    monkeypatch.setattr(segmenter, "_gap", lambda generator: 10**9)
    for line, ids in zip(LINES, bpe.encode_source(LINES), strict=True):
        assert segmenter.draw(ids, Random(1)) == ids
        for word in segmenter._words(ids):
            if text := segmenter._text(word):
                assert segmenter._merge(text, 10**9, Random(1))[0] == [*word], line


def test_the_smallest_share_of_merges_is_none(bpe):
    segmenter, _ = bpe.segmenters(5e-324)
    for seed, ids in enumerate(bpe.encode_source(LINES)):
        assert segmenter.draw(ids, Random(seed)) == ids


# An epoch's pairs.

COLUMNS = {
    "src": [*ENGLISH[:30], "", "she"],
    "tgt": [*VIETNAMESE[:30], "", "cô ấy"],
    "alignment": [*["0-0 1-2 1-3 2-1"] * 30, "", "0-0 0-1"],
}


def make_data(case, *, seed: int = 1, sample: bool = True, **changes) -> TranslationDataModule:
    tokenizer, alpha = case
    text = Dataset.from_dict(COLUMNS)
    options = {"max_length": 60, "max_ratio": 9.0, "max_tokens": 200, "guided": False}
    return TranslationDataModule(
        {"train": text, "val": text.select(range(5))},
        tokenizer,
        seed=seed,
        sampling=alpha if sample else 0.0,
        **(options | changes),
    )


def pieces(data: TranslationDataModule, epoch: int) -> dict[int, tuple[list[int], list[int]]]:
    rows = data.rows("train", epoch=epoch).dataset
    return {row["index"]: (row["src_ids"], row["tgt_ids"]) for row in rows}


def test_each_epoch_has_pieces_of_its_own_that_read_the_same(case):
    data = make_data(case)
    first, second = pieces(data, 0), pieces(data, 1)
    assert sorted(first) == sorted(second) == [*range(30), 31]  # the empty pair is left out before
    assert sum(first[row] != second[row] for row in first) > 20
    assert pieces(make_data(case), 1) == second
    assert pieces(data, 0) == first
    assert pieces(make_data(case, seed=2), 0) != first
    for drawn in (first, second):
        for row, (_, tgt_ids) in drawn.items():
            assert case[0].decode([tgt_ids]) == [COLUMNS["tgt"][row]]


def test_a_pair_does_not_depend_on_the_others(case, monkeypatch):
    data = make_data(case)
    whole = pieces(data, 3)
    sampler = PairSampler(*case, max_length=60, seed=1)
    monkeypatch.setattr("nmt.data.pair_sampler._ROWS_A_BLOCK", 4)
    some = sampler.draw(data.train.select([20, 3, 11, 7, 1, 5]), 3)
    assert {row["index"]: (row["src_ids"], row["tgt_ids"]) for row in some} == {
        index: whole[index] for index in (20, 3, 11, 7, 1, 5)
    }


def test_a_side_that_would_be_too_long_keeps_its_own_pieces(case):
    free = make_data(case)
    planned = {row["index"]: (row["src_ids"], row["tgt_ids"]) for row in free.train}
    longest = max(len(side) for pair in planned.values() for side in pair)
    drawn, bound = pieces(free, 0), pieces(make_data(case, max_length=longest), 0)
    cut_back = 0
    for row in planned:
        for own, ours, theirs in zip(planned[row], drawn[row], bound[row], strict=True):
            assert theirs == (ours if len(ours) <= longest else own)
            cut_back += len(ours) > longest
    assert cut_back > 0
    assert pieces(make_data(case, max_tokens=longest), 0) == bound


def rows_of(batches) -> list[tuple]:
    return [
        (batch.indices.tolist(), batch.src.tolist(), batch.tgt_in.tolist(), batch.tgt_out.tolist())
        for batch in batches
    ]


@pytest.mark.parametrize("epoch", [0, 2])
def test_batches_keep_to_the_budget_whatever_was_drawn_before(case, epoch):
    found = []
    for before in (None, 5):
        data = make_data(case)
        if before is not None:
            data.rows("train", epoch=before)
        sampler = data.sampler("train", shuffle=True, epoch=epoch)
        found.append([*data._loader(data.rows("train", epoch=epoch).dataset, sampler)])
    assert rows_of(found[0]) == rows_of(found[1])
    assert sorted(row for batch in found[0] for row in batch.indices.tolist()) == [*range(30), 31]
    for batch in found[0]:
        assert len(batch.src) * max(batch.src.size(1), batch.tgt_out.size(1)) <= 200
    assert all(rows in rows_of(found[0]) for rows in rows_of(data.largest_batches(epoch)))


def test_validation_text_is_not_sampled(case):
    ours, plain = (make_data(case, sample=each).val_dataloader() for each in (True, False))
    assert rows_of(ours) == rows_of(plain)


def test_links_follow_the_pieces(case):
    """The guide of each epoch says between words what the corpus says."""
    tokenizer, _ = case
    data = make_data(case, guided=True)
    found = set()
    for row in [row for epoch in (0, 1) for row in data.rows("train", epoch=epoch).dataset]:
        src, tgt, links = (COLUMNS[name][row["index"]] for name in ("src", "tgt", "alignment"))
        pairs = {tuple(map(int, link.split("-"))) for link in links.split()}
        src_words, tgt_words = (
            words_of(pieces_of(side, row[ids][:-1]), text)
            for side, ids, text in (
                (tokenizer._source, "src_ids", src),
                (tokenizer._target, "tgt_ids", tgt),
            )
        )
        linked = list(zip(row["links"][::2], row["links"][1::2], strict=True))
        assert linked == sorted(
            (t, s) for t, j in enumerate(tgt_words) for s, i in enumerate(src_words) if (i, j) in pairs
        )
        found.add(tuple(linked))
    assert len(found) > 31


def words_of(labels: list[str], text: str) -> list[int]:
    """The word of each piece, by the spaces alone."""
    words = list(np.cumsum([label[0] == "▁" for label in labels]) - 1)
    assert "".join(labels).replace("▁", " ").strip() == text
    return [int(each) for each in words]


def test_a_side_that_is_cut_back_keeps_its_own_links(case):
    data = make_data(case, guided=True)
    assert PairSampler(*case, max_length=1, seed=1).draw(data.train, 0).to_dict() == data.train.to_dict()


# What cannot be.


@pytest.mark.parametrize(
    ("model_type", "alpha", "message"),
    [
        ("bpe", 1.0, "sampling=1.0: give a number above 0 and below 1 for a bpe model"),
        ("bpe", -0.1, "sampling=-0.1: give a number above 0 and below 1"),
        ("bpe", float("nan"), "sampling=nan: give a number above 0"),
        ("unigram", -1, "sampling=-1: give a number above 0 for a unigram model"),
        ("unigram", math.inf, "sampling=inf: give a number above 0"),
    ],
)
def test_a_sampling_that_cannot_be_is_refused(request, model_type, alpha, message):
    with pytest.raises(UserError, match=message):
        request.getfixturevalue(model_type).segmenters(alpha)


def test_models_that_cannot_sample_are_refused(tmp_path):
    files = {
        kind: brought_along(tmp_path / kind, model_type=kind, vocab_size=size, **SPECIAL_IDS)
        for kind, size in (("word", 40), ("char", 40), ("bpe", 85), ("unigram", 85))
    }
    for kind in ("word", "char"):
        with pytest.raises(UserError, match=r"sampling=0\.1: a model of words or characters has one way"):
            Tokenizer.from_models(files[kind]).segmenters(0.1)
    with pytest.raises(
        UserError, match=r"one thing for a bpe model and another for a unigram model: give two"
    ):
        Tokenizer.from_models(files["bpe"], files["unigram"]).segmenters(0.1)
    tokenizer = Tokenizer.from_models(files["bpe"], files["bpe"])
    assert all(isinstance(each, Segmenter) for each in tokenizer.segmenters(0.1))
