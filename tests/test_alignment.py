"""Alignments and their error against hand-worked cases and plain loops."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

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


def test_links_are_the_most_attended_source_words():
    assert alignment.links_from_weights([[0.2, 0.8], [0.5, 0.5], [0.0, 0.0]]) == {(1, 0), (0, 1)}
    assert alignment.links_from_weights(np.zeros((0, 3))) == set()
    assert alignment.links_from_weights(np.zeros((3, 0))) == set()


def test_statistics_are_means_over_pieces():
    found = alignment.statistics([np.eye(2), np.array([[0.5, 0.5, 0.0, 0.0]])])
    assert found["entropy"] == pytest.approx(math.log(2) / 3)
    assert found["concentration"] == pytest.approx(2.5 / 3)
    assert found["locality"] == pytest.approx((1 + 1 + 0.75) / 3)
    assert found["coverage"] == pytest.approx(4 / 6)
    assert found["diagonality"] == pytest.approx(1 / 2)  # the second has one row, which does not move
    # As the rows of local_p, which sum to less than 1.
    faint = alignment.statistics([0.3 * np.eye(2), np.zeros((1, 2))])
    assert (faint["concentration"], faint["locality"]) == pytest.approx((2 / 3, 2 / 3))
    assert (faint["entropy"], faint["coverage"]) == (0, 2 / 4)
    barely = alignment.statistics([np.array([[0.45, 0.55], [0.0, 0.0]])])
    assert barely["coverage"] == 1 / 2  # half a piece's worth is asked for
    for nothing in ([], [np.zeros((0, 3))], [np.zeros((2, 0))]):
        with pytest.raises(ValueError, match=f"{len(nothing)} sentences"):
            alignment.statistics(nothing)


def test_alignment_error_equals_the_published_formula_in_loops():
    rng = np.random.default_rng(3)
    grid = [(i, j) for i in range(4) for j in range(3)]

    def some(share):
        return {link for link in grid if rng.random() < share}

    sures = [some(0.3) for _ in range(25)]
    possibles = [sure | some(0.3) for sure in sures]
    found = [some(0.4) for _ in range(25)]
    a = s = a_and_s = a_and_p = 0
    for k in range(25):
        for link in grid:
            a += link in found[k]
            s += link in sures[k]
            a_and_s += link in found[k] and link in sures[k]
            a_and_p += link in found[k] and link in possibles[k]
    expected = (1 - (a_and_s + a_and_p) / (a + s), a_and_p / a, a_and_s / s)
    assert alignment.score_alignments(found, sures, possibles) == pytest.approx(expected, abs=1e-12)


def test_a_file_of_links_is_read_line_by_line(tmp_path):
    path = tmp_path / "gold.talp"
    path.write_text("0-0 1p2\n\n2-1\n", "utf-8")
    sure, possible = {(0, 0)}, {(0, 0), (1, 2)}
    assert alignment.read_alignments(path) == [(sure, possible), (set(), set()), ({(2, 1)}, {(2, 1)})]
    path.write_text("0-0\n0-x\n", "utf-8")
    with pytest.raises(UserError, match=r"gold\.talp:2: '0-x' is no link"):
        alignment.read_alignments(path)
    with pytest.raises(UserError, match=r"none\.talp: cannot read it \(No such file"):
        alignment.read_alignments(tmp_path / "none.talp")
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"gold\.talp, line 1: not UTF-8"):
        alignment.read_alignments(path)


def test_a_reading_gives_each_piece_its_own_row_or_the_next():
    weights = np.eye(3, 5)  # two pieces and the end of sentence
    np.testing.assert_array_equal(alignment.shift_reading(weights, "emitted"), weights[[0, 1]])
    np.testing.assert_array_equal(alignment.shift_reading(weights, "fed"), weights[[1, 2]])
    with pytest.raises(ValueError, match="emitted or fed"):
        alignment.shift_reading(weights, "other")


def test_links_by_threshold_and_by_mutual_choice():
    weights = [[0.6, 0.4, 0.0], [0.7, 0.0, 0.3], [0.0, 0.0, 0.0]]
    assert alignment.links_from_weights(weights) == {(0, 0), (0, 1)}
    assert alignment.links_from_weights(weights, "mutual") == {(0, 1)}
    assert alignment.links_from_weights(weights, "threshold", threshold=0.4) == {(0, 0), (1, 0), (0, 1)}
    assert alignment.links_from_weights(weights, "threshold", threshold=0) == {(0, 0), (1, 0), (0, 1), (2, 1)}
    with pytest.raises(ValueError, match="argmax, mutual or threshold"):
        alignment.links_from_weights(weights, "other")


def symal_by_arrays(forward, backward, m, n, *, final, both):
    """Grow-diag(-final(-and)) as it is published: one link a word in each direction, arrays and a matrix, from 1.

    forward[j] is the first language's word of second word j, backward[i] the second's of first word i; 0 is none.
    """
    kept = [[forward[j] == i and backward[i] == j and i > 0 for j in range(n + 1)] for i in range(m + 1)]
    row_used = [any(kept[i]) for i in range(m + 1)]
    column_used = [any(kept[i][j] for i in range(m + 1)) for j in range(n + 1)]
    grown = True
    while grown:
        grown = False
        for j in range(1, n + 1):
            for i in range(1, m + 1):
                if not kept[i][j]:
                    continue
                for down, right in ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1)):
                    x, y = i + down, j + right
                    if not (1 <= x <= m and 1 <= y <= n) or not (forward[y] == x or backward[x] == y):
                        continue
                    if not (row_used[x] and column_used[y]):
                        kept[x][y] = row_used[x] = column_used[y] = grown = True
    if final:
        ours = [(forward[j], j) for j in range(1, n + 1) if forward[j]]
        theirs = sorted(
            ((i, backward[i]) for i in range(1, m + 1) if backward[i]), key=lambda p: (p[1], p[0])
        )
        for x, y in ours + theirs:
            used = row_used[x] + column_used[y]
            if used == 0 or (used == 1 and not both):
                kept[x][y] = row_used[x] = column_used[y] = True
    return {(i - 1, j - 1) for i in range(1, m + 1) for j in range(1, n + 1) if kept[i][j]}


GROWN = {
    "grow-diag": {"final": False, "both": False},
    "grow-diag-final": {"final": True, "both": False},
    "grow-diag-final-and": {"final": True, "both": True},
}


@pytest.mark.parametrize("method", GROWN)
def test_symmetrisation_is_symal_s_algorithm(method):
    rng = np.random.default_rng(5)
    for _ in range(400):
        m, n = (int(size) for size in rng.integers(1, 9, 2))
        ahead, back = [0, *rng.integers(0, m + 1, n).tolist()], [0, *rng.integers(0, n + 1, m).tolist()]
        forward = {(i - 1, j - 1) for j, i in enumerate(ahead) if i}
        backward = {(i - 1, j - 1) for i, j in enumerate(back) if j}
        found = alignment.symmetrize(forward, backward, method)
        assert found == symal_by_arrays(ahead, back, m, n, **GROWN[method])
        assert alignment.symmetrize(forward, backward, "intersection") == forward & backward
        assert alignment.symmetrize(forward, backward, "union") == forward | backward


def test_symmetrisation_keeps_what_agrees_and_refuses_other_methods():
    same = {(0, 1), (1, 0), (2, 2)}
    for method in ("intersection", "union", *GROWN):
        assert alignment.symmetrize(same, same, method) == same
        assert alignment.symmetrize(set(), set(), method) == set()
        assert alignment.symmetrize(set(), same, method) == (
            same if "final" in method or method == "union" else set()
        )
    with pytest.raises(ValueError, match="grow-diag-final-and, not 'grow'"):
        alignment.symmetrize(same, same, "grow")


def entropy_by_loops(row):
    return -sum(weight * math.log(weight) for weight in row if weight > 0)


def diagonality_by_loops(rows):
    expected = [sum(j * weight for j, weight in enumerate(row)) for row in rows]
    mean_t, mean_s = (len(rows) - 1) / 2, sum(expected) / len(rows)
    covariance = sum((t - mean_t) * (s - mean_s) for t, s in enumerate(expected))
    squares = [sum((t - mean_t) ** 2 for t in range(len(rows))), sum((s - mean_s) ** 2 for s in expected)]
    return covariance / math.sqrt(squares[0] * squares[1]) if min(squares) > 0 else 0.0


def locality_by_loops(rows):
    T, S = len(rows), len(rows[0])
    return [
        1 - sum(weight * abs((j + 0.5) / S - (t + 0.5) / T) for j, weight in enumerate(row))
        for t, row in enumerate(rows)
    ]


# Of one sentence: rows [T][S] -> one number, or one for each target or source position.
LOOPS = {
    "entropy": lambda rows: [entropy_by_loops(row) for row in rows],
    "concentration": lambda rows: [max(row) for row in rows],
    "locality": locality_by_loops,
    "source_coverage": lambda rows: [sum(column) for column in zip(*rows, strict=True)],
    "diagonality": diagonality_by_loops,
}


def random_weights():
    """Weights [layers, B, heads, T, S]."""
    return np.random.default_rng(6).dirichlet(np.full(6, 0.4), size=(2, 3, 4, 5))


@pytest.mark.parametrize("name", LOOPS)
def test_a_measure_equals_its_definition_in_loops(name):
    weights, by_loops = random_weights(), LOOPS[name]
    found = getattr(alignment, name)(tuple(torch.from_numpy(weights)))
    for index in np.ndindex(weights.shape[:3]):
        expected = by_loops(weights[index].tolist())
        np.testing.assert_allclose(found[index], expected, rtol=0, atol=1e-12)
        alone = getattr(alignment, name)(weights[index].tolist())
        np.testing.assert_allclose(alone, expected, rtol=0, atol=1e-12)


def test_heads_agree_as_their_jensen_shannon_divergence_says():
    weights = random_weights()
    found = alignment.agreement(weights)
    for layer, b, t in np.ndindex(2, 3, 5):
        rows = weights[layer, b, :, t].tolist()
        mean = [sum(column) / 4 for column in zip(*rows, strict=True)]
        divergences = [
            sum(w * math.log(w / middle) for w, middle in zip(row, mean, strict=True) if w > 0)
            for row in rows
        ]
        assert found[layer, b, t] == pytest.approx(1 - sum(divergences) / 4 / math.log(4), abs=1e-12)
    assert alignment.agreement(np.stack([np.eye(3)] * 2)) == pytest.approx([1, 1, 1])
    assert alignment.agreement(np.eye(3)[:, None, :]) == pytest.approx([0])
    for single in (np.eye(3), np.eye(3)[None]):
        with pytest.raises(ValueError, match=r"[.]{3}, K, T, S[]], got 1 head"):
            alignment.agreement(single)
    with pytest.raises(ValueError, match=r"\[\.\.\., T, S\], got 1 dimension"):
        alignment.entropy(np.ones(3))


def test_diagonality_is_the_correlation_of_positions():
    assert alignment.diagonality(np.eye(6)) == pytest.approx(1)
    assert alignment.diagonality(np.eye(6)[::-1]) == pytest.approx(-1)
    assert alignment.diagonality(np.full((5, 7), 1 / 7)) == 0
    assert alignment.diagonality([[1.0]]) == 0


@pytest.mark.parametrize("tensor", [torch.eye(2, dtype=torch.bfloat16), torch.eye(2, requires_grad=True)])
def test_tensors_of_any_precision_and_in_a_graph_are_accepted(tensor):
    assert alignment.links_from_weights(tensor) == {(0, 0), (1, 1)}
    assert alignment.entropy(tensor) == pytest.approx([0, 0])
    words = alignment.words_from_pieces(tensor, [0, 1], [0, 1], num_tgt_words=2, num_src_words=2)
    np.testing.assert_array_equal(words, np.eye(2))


def test_weights_that_do_not_fit_the_pieces_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 3\) but there are 2 target and 3 source pieces"):
        alignment.words_from_pieces(np.eye(3), [0, 1], [0, 1, 2], num_tgt_words=2, num_src_words=3)


REAL = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "languages", "count"),
    [("alignments/hansards_trial", ("en", "fr"), 37), ("alignments/alibi", ("fr", "en"), 522)]
    + [(f"bible_grc_en/{split}", ("grc", "en"), n) for split, n in (("val", 162), ("test", 300))],
)
def test_published_alignments_are_read_whole_and_are_perfect_for_themselves(name, languages, count):
    path = REAL / f"{name}.talp"
    if not path.is_file():
        pytest.skip(f"no {name} beside the project")
    pairs = alignment.read_alignments(path)
    assert len(pairs) == count
    sides = [Path(f"{path.with_suffix('')}.{lang}").read_text("utf-8").split("\n") for lang in languages]
    for (_, possible), first, second in zip(pairs, *sides, strict=False):
        assert all(i < len(first.split()) and j < len(second.split()) for i, j in possible)
    sures, possibles = zip(*pairs, strict=True)
    assert alignment.score_alignments(sures, sures, possibles).aer == 0


def test_a_pharaoh_file_has_no_possible_links(tmp_path):
    path = tmp_path / "links"
    path.write_text("0-0\n0-0 1p1\n", "utf-8")
    with pytest.raises(UserError, match=r"links:2: a Pharaoh line has links i-j only"):
        alignment.read_alignments(path, possible=False)
