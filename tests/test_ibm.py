"""IBM Model 2 against a plain loop over its equations, and against known alignments."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

from nmt.alignment import align_words, score_alignments
from nmt.alignment.ibm import DIRICHLET, LEAST, NUM_ITERATIONS, P_EMPTY, TENSION, align_text
from nmt.alignment.numbered_words import Words
from nmt.data import grammar

RANDOM = np.random.default_rng(1)
PAIRS = [
    (
        RANDOM.integers(0, 6, RANDOM.integers(1, 6)).tolist(),
        RANDOM.integers(0, 7, RANDOM.integers(1, 6)).tolist(),
    )
    for _ in range(12)
]


def text(sentences):
    return Words(np.array([each for ids in sentences for each in ids]), np.array([*map(len, sentences)]))


def sets_of(found, number):
    links = [set() for _ in range(number)]
    for pair, i, j in zip(*map(np.ndarray.tolist, found), strict=True):
        links[pair].add((i, j))
    return links


def aligned(pairs, **limits):
    src, tgt = zip(*pairs, strict=True)
    return sets_of(align_text(text(src), text(tgt), **limits), len(pairs))


def distances(pair):
    """exp(-4 |i/m - j/n|), with the middle of each unit as its place, as {(i, j): value}."""
    src, tgt = pair
    return {
        (i, j): math.exp(-TENSION * abs((i + 0.5) / len(src) - (j + 0.5) / len(tgt)))
        for i in range(len(src))
        for j in range(len(tgt))
    }


def posteriors(pair, q, q0):
    """p(i | j) as {(i, j): value}, and p(empty | j) as {j: value}, by the equations at the head of the module."""
    src, tgt = pair
    near = distances(pair)
    found, of_empty = {}, {}
    for j, made in enumerate(tgt):
        total_near = sum(near[i, j] for i in range(len(src)))
        joint = {i: (1 - P_EMPTY) * near[i, j] / total_near * q[given, made] for i, given in enumerate(src)}
        empty = P_EMPTY * q0[made]
        for i in joint:
            found[i, j] = joint[i] / (sum(joint.values()) + empty)
        of_empty[j] = empty / (sum(joint.values()) + empty)
    return found, of_empty


def digamma(x):
    return torch.digamma(torch.tensor(x, dtype=torch.float64)).item()


def learned(pairs):
    """q and q0 after all iterations, as functions of dictionaries."""
    types = 1 + max(made for _, tgt in pairs for made in tgt)
    q, q0 = defaultdict(lambda: 1 / types), defaultdict(lambda: 1 / types)
    for _ in range(NUM_ITERATIONS):
        counts, empty_counts = Counter(), Counter(dict.fromkeys(range(types), 0.0))
        for src, tgt in pairs:
            found, of_empty = posteriors((src, tgt), q, q0)
            for (i, j), value in found.items():
                counts[src[i], tgt[j]] += value
            for j, value in of_empty.items():
                empty_counts[tgt[j]] += value
        totals = Counter()
        for (given, _), value in counts.items():
            totals[given] += value
        q = {
            (given, made): math.exp(digamma(value + DIRICHLET) - digamma(totals[given] + types * DIRICHLET))
            for (given, made), value in counts.items()
        }
        of_all = digamma(sum(empty_counts.values()) + types * DIRICHLET)
        q0 = {made: math.exp(digamma(value + DIRICHLET) - of_all) for made, value in empty_counts.items()}
    return q, q0


def reference(pairs):
    turned = [(tgt, src) for src, tgt in pairs]
    ahead, back = learned(pairs), learned(turned)
    links = []
    for pair, other in zip(pairs, turned, strict=True):
        there, again = posteriors(pair, *ahead)[0], posteriors(other, *back)[0]
        links.append({(i, j) for i, j in there if there[i, j] * again[j, i] >= LEAST})
    return links


def test_links_are_those_of_a_loop_over_the_equations():
    assert aligned(PAIRS) == reference(PAIRS)


@pytest.mark.parametrize("block_cells", [1, 10, 40])
def test_blocks_change_no_link(block_cells):
    assert aligned(PAIRS, block_cells=block_cells) == aligned(PAIRS)


def test_a_lexicon_is_found_in_spite_of_another_order():
    """Every word has one translation; two neighbours are swapped in each pair."""
    pairs, expected = [], []
    for _ in range(300):
        src = RANDOM.permutation(40)[: RANDOM.integers(3, 9)].tolist()
        order = [*range(len(src))]
        place = RANDOM.integers(0, len(src) - 1)
        order[place], order[place + 1] = order[place + 1], order[place]
        pairs.append((src, [39 - src[i] for i in order]))
        expected.append({(i, j) for j, i in enumerate(order)})
    assert aligned(pairs) == expected


def test_pairs_that_were_not_learned_from_are_linked_by_the_lexicon():
    """Only the first and the last pair are learned from; unit 3 is in neither."""
    pairs = [([0, 1], [0, 1]), ([1, 0], [1, 0]), ([3, 0], [3, 0]), ([0, 1], [0, 1])]
    found = aligned(pairs, most_cells=8)
    assert found == [{(0, 0), (1, 1)}, {(0, 0), (1, 1)}, {(1, 1)}, {(0, 0), (1, 1)}]


def test_links_come_by_pair_then_target_then_source():
    found = align_text(*(text(side) for side in zip(*PAIRS, strict=True)), block_cells=10)
    rows = [*zip(found.pair.tolist(), found.tgt.tolist(), found.src.tolist(), strict=True)]
    assert rows == sorted(rows)


def test_the_built_in_corpus_is_aligned_almost_as_its_grammar_does():
    pairs = grammar.corpus(num_train=1000, num_val=1, num_test=1, max_words=20, seed=1)["train"]
    found = align_words([pair.en.split() for pair in pairs], [pair.vi.split() for pair in pairs])
    gold = [{*pair.alignment} for pair in pairs]
    assert score_alignments([*found], gold, gold).aer < 0.2


def test_words_count_without_their_ends_case_and_punctuation():
    """Pairs with an empty side and pairs of a thousand words and more stay without links, and change none."""
    plain = [(["house", "red"], ["nhà", "đỏ"]), (["red"], ["đỏ"]), (["house"], ["nhà"])] * 5
    other = [
        (["Houses,", "(red)"], ["nhà", "đỏ"]),
        (["RED"], ["đỏ!"]),
        (
            [
                "houseboat",
            ],
            ["nhà"],
        ),
    ] * 5
    assert [*align_words(*zip(*plain, strict=True))] == [{(0, 0), (1, 1)}, {(0, 0)}, {(0, 0)}] * 5
    others = [*plain[:3], ([], ["nhà"]), (["red"] * 1025, ["nhà"] * 1025), *plain[3:]]
    assert [*align_words(*zip(*others, strict=True))] == [
        {(0, 0), (1, 1)},
        {(0, 0)},
        {(0, 0)},
        set(),
        set(),
    ] + [{(0, 0), (1, 1)}, {(0, 0)}, {(0, 0)}] * 4
    assert [*align_words(*zip(*other, strict=True))] == [*align_words(*zip(*plain, strict=True))]
    assert [*align_words([[], ["a"]], [["b"], []])] == [set(), set()]
    assert [*align_words([], [])] == []
