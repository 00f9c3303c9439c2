"""Alignments and their error against hand-worked cases and plain loops."""

import math

import numpy as np
import pytest

from nmt import alignment
from nmt.errors import UserError


def test_pharaoh_lines_round_trip_sorted():
    assert alignment.parse_pharaoh(" 1-2 0-0\n") == {(0, 0), (1, 2)}
    assert alignment.format_pharaoh({(10, 1), (2, 3), (2, 0)}) == "2-0 2-3 10-1"
    assert alignment.parse_pharaoh("") == set()
    assert alignment.format_pharaoh(set()) == ""


@pytest.mark.parametrize("line", ["1", "1-", "a-b", "1-2-3", "-1-2", "1:2"])
def test_what_is_no_link_is_named(line):
    with pytest.raises(UserError, match="is no link"):
        alignment.parse_pharaoh(f"0-0 {line}")


def test_talp_lines_have_sure_and_possible_links():
    assert alignment.parse_talp("0-0 1p2") == ({(0, 0)}, {(0, 0), (1, 2)})
    with pytest.raises(UserError, match="i-j only"):
        alignment.parse_pharaoh("0-0 1p2")


def test_alignment_error_worked_by_hand():
    # A = {00, 11, 21}, S = {00, 11}, P = S + {21, 22}: |A and S| = 2, |A and P| = 3, so 1 - 5 / 5.
    sure, possible = {(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 1), (2, 2)}
    assert alignment.score_alignments([{(0, 0), (1, 1), (2, 1)}], [sure], [possible]) == (0.0, 1.0, 1.0)
    # One of four links possible only, one wrong, one sure link missed: 1 - (1 + 2) / (3 + 2).
    result = alignment.score_alignments([{(0, 0), (2, 2), (3, 3)}], [sure], [possible])
    assert result == pytest.approx((0.4, 2 / 3, 0.5))


def test_counts_are_summed_over_the_corpus_before_the_ratio():
    result = alignment.score_alignments(
        [{(0, 0)}, {(0, 0), (1, 0)}], [{(0, 0)}, {(1, 1)}], [{(0, 0)}, {(1, 1)}]
    )
    assert result == pytest.approx((1 - 2 / 5, 1 / 3, 1 / 2))


def test_empty_sentences_and_empty_hypotheses_are_defined():
    assert alignment.score_alignments([set()], [set()], [set()]) == (0.0, 1.0, 1.0)
    assert alignment.score_alignments([set()], [{(0, 0)}], [{(0, 0)}]) == (1.0, 1.0, 0.0)
    assert alignment.score_alignments([], [], []) == (0.0, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"zip\(\)"):
        alignment.score_alignments([set()], [], [])


def words_by_loops(weights, tgt_words, src_words, num_tgt, num_src):
    result = [[0.0] * num_src for _ in range(num_tgt)]
    for word in range(num_tgt):
        pieces = [t for t, w in enumerate(tgt_words) if w == word]
        for t in pieces:
            kept = sum(weights[t][s] for s, w in enumerate(src_words) if w >= 0)
            for s, source in enumerate(src_words):
                if source >= 0 and kept > 0:
                    result[word][source] += weights[t][s] / kept / len(pieces)
    return result


def test_weights_between_words_equal_the_definition_in_loops():
    rng = np.random.default_rng(2)
    for _ in range(20):
        T, S = rng.integers(1, 9, 2)
        weights = rng.random((T, S))
        tgt_words, src_words = rng.integers(-1, 4, T), rng.integers(-1, 4, S)
        found = alignment.words_from_pieces(weights, tgt_words, src_words, num_tgt_words=5, num_src_words=4)
        expected = words_by_loops(weights, tgt_words, src_words, 5, 4)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_the_end_of_sentence_is_left_out_and_the_rest_renormalised():
    weights = [[0.1, 0.2, 0.1, 0.6], [0.0, 0.0, 0.0, 1.0], [0.3, 0.3, 0.3, 0.1]]
    found = alignment.words_from_pieces(weights, [0, 1, -1], [0, 0, 1, -1], num_tgt_words=2, num_src_words=2)
    np.testing.assert_allclose(found, [[0.75, 0.25], [0.0, 0.0]])
    assert alignment.links_from_weights(found) == {(0, 0)}


def test_links_are_the_most_attended_source_words():
    assert alignment.links_from_weights([[0.2, 0.8], [0.5, 0.5], [0.0, 0.0]]) == {(1, 0), (0, 1)}
    assert alignment.links_from_weights(np.zeros((0, 3))) == set()
    assert alignment.links_from_weights(np.zeros((3, 0))) == set()


def test_entropy_of_the_uniform_is_log_n_and_of_one_hot_is_nothing():
    assert alignment.entropy(np.full((2, 8), 1 / 8)) == pytest.approx([math.log(8)] * 2)
    assert alignment.entropy(np.eye(3)) == pytest.approx([0, 0, 0])
    assert alignment.concentration(np.eye(3)) == pytest.approx([1, 1, 1])
    assert alignment.received([[0.25, 0.75], [0.5, 0.5]]) == pytest.approx([0.75, 1.25])


def test_statistics_are_means_over_pieces():
    found = alignment.statistics([np.eye(2), np.array([[0.5, 0.5, 0.0, 0.0]])])
    assert found["entropy"] == pytest.approx(math.log(2) / 3)
    assert found["concentration"] == pytest.approx(2.5 / 3)
    assert found["coverage"] == pytest.approx(4 / 6)
