"""Search against brute force over a toy model whose probabilities a plain loop can read off a table."""

import copy
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from torch import Tensor

from nmt import decoding
from nmt.config.build import build
from nmt.decoding import (
    Hypothesis,
    draw,
    force_decode,
    length_limits,
    length_penalty,
)
from nmt.models.base import Forward, Step, Translator
from tests.searches import beam_search, greedy_search, sample, search

PAD, BOS, EOS = 0, 1, 2

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


class Table(Translator):
    """`p(y_t | h_t)`, where h sums up the source and the history: each logit comes from a table.

    The history is an integer `h_t = (3 h_{t-1} + y_{t-1}) mod 97`, and `h_0` is the sum of the source ids, so
    that neither padding nor neighbours can have a say. The weights of a step follow from h as well.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        seed: int = 0,
        attends: bool = True,
        scale: float = 1.5,
        eos: float = 0.0,
    ) -> None:
        super().__init__()
        self.pad_id, self.bos_id, self.eos_id = PAD, BOS, EOS
        generator = torch.Generator().manual_seed(seed)
        self.table = scale * torch.randn(97, vocab_size, generator=generator, dtype=torch.float64)
        self.table[:, EOS] += eos
        self.attends = attends
        self.num_rows: list[int] = []  # how many hypotheses each step was asked to advance
        self.eval()

    @property
    def has_attention(self) -> bool:
        return self.attends

    def encode(self, src: Tensor, src_mask: Tensor) -> dict[str, Tensor]:
        return {"src": src * src_mask, "mask": src_mask}

    def init_state(self, memory: Any) -> tuple[Tensor]:
        return (memory["src"].sum(dim=1) % 97,)

    def step(self, tgt_prev: Tensor, state: Any, memory: Any, *, need_weights: bool = False) -> Step:
        self.num_rows.append(len(tgt_prev))
        history = (3 * state[0] + tgt_prev) % 97
        weights = None
        if need_weights and self.attends:
            width = len(tgt_prev) // len(memory["src"])
            src = memory["src"].repeat_interleave(width, dim=0)
            mask = memory["mask"].repeat_interleave(width, dim=0)
            scores = ((src * (history.unsqueeze(1) + 1)) % 7).double()
            weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=1)
        return Step(self.table[history], (history,), weights)

    def forward(self, memory: Any, tgt_in: Tensor, *, need_weights: bool = False) -> Forward:
        state, steps = self.init_state(memory), []
        for t in range(tgt_in.size(1)):
            steps.append(self.step(tgt_in[:, t], state, memory, need_weights=need_weights))
            state = steps[-1].state
        weights = None
        if steps[0].weights is not None:
            weights = torch.stack([step.weights for step in steps if step.weights is not None], dim=1)
        return Forward(torch.stack([step.logits for step in steps], dim=1), weights)


def batch_of(*sentences: list[int]) -> Tensor:
    longest = max(map(len, sentences))
    return torch.tensor([ids + [PAD] * (longest - len(ids)) for ids in sentences])


def log_probability(model: Table, src: list[int], pieces: list[int]) -> float:
    """`log p(pieces, EOS | src)` by a loop over Python numbers that shares nothing with the search."""
    history, total = sum(src) % 97, 0.0
    for previous, piece in zip([BOS, *pieces], [*pieces, EOS], strict=True):
        history = (3 * history + previous) % 97
        row = model.table[history].tolist()
        total += row[piece] - math.log(sum(map(math.exp, row)))
    return total


def plain_beam(
    model: Table, src: list[int], *, beam_size: int, alpha: float, max_length: int
) -> tuple[list[list[int]], int]:
    """Beam search of one sentence with Python lists: the finished, best first, and the number of steps."""
    live, finished, num_steps = [(0.0, [BOS], sum(src) % 97)], [], 0
    while live and len(finished) < beam_size:
        num_steps += 1
        candidates = []
        for log_prob, pieces, previous_history in live:
            history = (3 * previous_history + pieces[-1]) % 97
            row = model.table[history].tolist()
            total = math.log(sum(map(math.exp, row)))
            allowed = (
                [EOS] if len(pieces) > max_length else [p for p in range(len(row)) if p not in (PAD, BOS)]
            )
            candidates += [(log_prob + row[p] - total, [*pieces, p], history) for p in allowed]
        best = sorted(candidates, reverse=True)[: beam_size - len(finished)]
        live = [each for each in best if each[1][-1] != EOS]
        finished += [
            (log_prob / ((5 + len(pieces) - 1) / 6) ** alpha, pieces[1:-1])
            for log_prob, pieces, _ in best
            if pieces[-1] == EOS
        ]
        attainable = max((each[0] / ((5 + max_length + 1) / 6) ** alpha for each in live), default=-math.inf)
        if finished and max(finished)[0] >= attainable:
            break
    return [pieces for _, pieces in sorted(finished, reverse=True)], num_steps


def allowed(
    pieces: list[int],
    vocabulary: list[int],
    *,
    limit: int,
    minimum: int = 0,
    ngram: int = 0,
    prefix: tuple[int, ...] = (),
) -> list[int]:
    """What may follow `pieces`, by the rules read aloud."""
    if len(pieces) < len(prefix):
        return [prefix[len(pieces)]]
    if len(pieces) >= limit:
        return [EOS]
    fresh = []
    for piece in vocabulary:
        last = (*pieces, piece)[len(pieces) + 1 - ngram :]
        earlier = [tuple(pieces[i : i + ngram]) for i in range(len(pieces) - ngram + 1)]
        if ngram == 0 or len(last) < ngram or last not in earlier:
            fresh.append(piece)
    return fresh if fresh and len(pieces) < minimum else [EOS, *fresh]


def sequences(vocabulary: list[int], pieces: list[int], **rules: Any) -> Iterator[list[int]]:
    """Every sequence that the rules of `allowed` let begin with `pieces` and end."""
    for piece in allowed(pieces, vocabulary, **rules):
        if piece == EOS:
            yield pieces
        else:
            yield from sequences(vocabulary, [*pieces, piece], **rules)


def plain_coverage_penalty(src: list[int], pieces: list[int], beta: float) -> float:
    """Wu et al. 2016, eq. 14, for the weights of `Table`, in loops over Python numbers."""
    history, covered = sum(src) % 97, [0.0] * len(src)
    for previous in (BOS, *pieces):
        history = (3 * history + previous) % 97
        exponentials = [math.exp((x * (history + 1)) % 7) for x in src]
        covered = [c + e / sum(exponentials) for c, e in zip(covered, exponentials, strict=True)]
    return beta * sum(math.log(min(max(c, 1e-6), 1.0)) for c in covered)


def assert_same(left: Hypothesis, right: Hypothesis) -> None:
    assert left.ids == right.ids
    assert left.log_prob == pytest.approx(right.log_prob, abs=1e-10)
    assert left.finished == right.finished
    assert (left.weights is None) == (right.weights is None)
    if left.weights is not None and right.weights is not None:
        torch.testing.assert_close(left.weights, right.weights, rtol=0, atol=1e-12)


SOURCES = [[5, 4, 3, EOS], [4, EOS], [EOS], [6, 6, 5, 3, 7, EOS], [3, 8, EOS]]


# What is asked of a search, and the same in the words of `allowed` for a source of so many positions.
PREFIXES: dict[int, tuple[int, ...]] = {4: (5, 5), 2: (3,), 1: (), 6: (4, 3, 4), 3: (5, 5, 5)}
PREFIX_ROWS = torch.tensor([[5, 5, PAD], [3, PAD, PAD], [PAD] * 3, [4, 3, 4], [5, 5, 5]])
CONSTRAINTS: dict[str, tuple[dict[str, Any], Any]] = {
    "cap": ({"max_length": 4}, lambda n: {"limit": 4}),
    "ratio": (
        {"max_length_ratio": 0.5, "max_length_extra": 1.5},
        lambda n: {"limit": int(0.5 * n + 1.5)},
    ),
    "minimum": ({"max_length": 4, "min_length": 3}, lambda n: {"limit": 4, "minimum": 3}),
    "minimum ratio": (
        {"max_length": 4, "min_length_ratio": 0.75},
        lambda n: {"limit": 4, "minimum": min(4, int(0.75 * n))},
    ),
    "no piece twice": ({"max_length": 5, "no_repeat_ngram_size": 1}, lambda n: {"limit": 5, "ngram": 1}),
    "no bigram twice": ({"max_length": 5, "no_repeat_ngram_size": 2}, lambda n: {"limit": 5, "ngram": 2}),
    "a minimum out of reach": (
        {"max_length": 6, "no_repeat_ngram_size": 1, "min_length": 5},
        lambda n: {"limit": 6, "ngram": 1, "minimum": 5},
    ),
    "prefix": ({"max_length": 4, "prefixes": PREFIX_ROWS}, lambda n: {"limit": 4, "prefix": PREFIXES[n]}),
    "all at once": (
        {"max_length": 5, "min_length": 4, "no_repeat_ngram_size": 2, "prefixes": PREFIX_ROWS},
        lambda n: {"limit": 5, "minimum": 4, "ngram": 2, "prefix": PREFIXES[n]},
    ),
}


@pytest.mark.parametrize("num_best", [1, 7])
@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (1.0, 0.0), (0.0, 2.0), (0.6, 0.4)])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_full_width_beam_is_exhaustive_search_under_every_constraint_and_penalty(
    name: str, alpha: float, beta: float, num_best: int
) -> None:
    model = Table(6, seed=3, eos=1.0)
    settings, rules = CONSTRAINTS[name]
    penalties = {"length_alpha": alpha, "coverage_beta": beta}
    found = beam_search(model, batch_of(*SOURCES), beam_size=400, num_best=num_best, **penalties, **settings)
    for src, hypotheses in zip(SOURCES, found, strict=True):
        best = []
        for pieces in sequences([3, 4, 5], [], **rules(len(src))):
            log_prob = log_probability(model, src, pieces)
            penalty = ((5 + len(pieces) + 1) / 6) ** alpha
            score = log_prob / penalty + plain_coverage_penalty(src, pieces, beta)
            best.append((score, log_prob, pieces))
        assert len(best) <= 400
        best = sorted(best, reverse=True)[:num_best]
        assert [each.ids for each in hypotheses] == [pieces for _, _, pieces in best]
        for each, (score, log_prob, _) in zip(hypotheses, best, strict=True):
            assert each.score == pytest.approx(score, abs=1e-9)
            assert each.log_prob == pytest.approx(log_prob, abs=1e-9)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_beam_of_one_is_greedy_search_under_every_constraint(name: str) -> None:
    settings, rules = CONSTRAINTS[name]
    for seed in range(5):
        model, src = Table(6, seed=seed), batch_of(*SOURCES)
        greedy = greedy_search(model, src, need_weights=True, **settings)
        beam = beam_search(model, src, beam_size=1, coverage_beta=1.0, need_weights=True, **settings)
        for sentence, one, (other,) in zip(SOURCES, greedy, beam, strict=True):
            assert_same(one, other)
            pieces: list[int] = []
            while True:  # the most probable of what is allowed, step by step
                choices = allowed(pieces, [3, 4, 5], **rules(len(sentence)))
                history = sum(sentence) % 97
                for previous in (BOS, *pieces):
                    history = (3 * history + previous) % 97
                piece = max(choices, key=model.table[history].tolist().__getitem__)
                if piece == EOS:
                    break
                pieces.append(piece)
            assert one.ids == pieces


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", [0.0, 1.0, 5.0])
def test_a_beam_of_one_is_greedy_search(seed: int, alpha: float) -> None:
    model, src = Table(9, seed=seed), batch_of(*SOURCES)
    settings = {"beam_size": 1, "length_alpha": alpha, "need_weights": True}
    beam = beam_search(model, src, **settings)
    for one, (found,), (other,) in zip(
        greedy_search(model, src, **settings), search(model, src, **settings), beam, strict=True
    ):
        assert_same(one, other)
        assert_same(found, other)
        assert one.score == found.score == pytest.approx(other.score)
        assert other.score == pytest.approx(other.log_prob / length_penalty(len(other.ids) + 1, alpha))


@pytest.mark.parametrize("beam_size", [1, 3, 8])
def test_scores_and_weights_are_those_of_forced_decoding(beam_size: int) -> None:
    model = Table(9, eos=-1.0)
    found = beam_search(
        model,
        batch_of(*SOURCES),
        beam_size=beam_size,
        num_best=beam_size,
        need_weights=True,
        length_alpha=0.6,
    )
    for src, hypotheses in zip(SOURCES, found, strict=True):
        for each in hypotheses:
            assert each.weights is not None
            assert each.weights.shape == (len(each.ids) + 1, len(src))
            assert each.score == pytest.approx(each.log_prob / length_penalty(len(each.ids) + 1, 0.6))
        forced = force_decode(
            model,
            batch_of(*[src] * len(hypotheses)),
            batch_of(*([BOS, *each.ids] for each in hypotheses)),
            batch_of(*([*each.ids, EOS] for each in hypotheses)),
            need_weights=True,
        )
        for each, again in zip(hypotheses, forced, strict=True):
            assert again.finished
            assert again.ids == each.ids
            assert again.log_prob == again.score == pytest.approx(each.log_prob, abs=1e-10)
            torch.testing.assert_close(again.weights, each.weights, rtol=0, atol=1e-12)


def test_forced_decoding_ignores_padding_and_sees_a_missing_eos() -> None:
    model = Table(9)
    src, tgt_in, tgt_out = (
        batch_of([3, EOS], [4, 5, EOS]),
        batch_of([BOS, 4], [BOS, 4, 5]),
        batch_of([4, EOS]),
    )
    tgt_out = batch_of([4, EOS], [4, 5, 6])
    closed, cut = force_decode(model, src, tgt_in, tgt_out, need_weights=True)
    assert closed.ids == [4]
    assert closed.finished
    assert closed.log_prob == pytest.approx(log_probability(model, [3, EOS], [4]), abs=1e-10)
    assert cut.ids == [4, 5, 6]
    assert not cut.finished
    assert cut.weights is not None
    assert cut.weights.shape == (3, 3)


@pytest.mark.parametrize("beam_size", [1, 2, 3, 5])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_narrow_beam_is_the_plain_loop_over_lists(beam_size: int, alpha: float) -> None:
    for seed in range(10):
        model = Table(9, seed=seed)
        for src in SOURCES:
            model.num_rows.clear()
            ((best,),) = beam_search(
                model,
                batch_of(src),
                beam_size=beam_size,
                length_alpha=alpha,
                max_length_ratio=0.0,
                max_length_extra=8,
            )
            expected, num_steps = plain_beam(model, src, beam_size=beam_size, alpha=alpha, max_length=8)
            assert best.ids == expected[0]
            assert len(model.num_rows) == num_steps


@pytest.mark.parametrize("beam_size", [1, 4])
def test_company_changes_nothing_under_constraints(beam_size: int) -> None:
    model = Table(9, eos=-1.0)

    def find(order: list[int], num_pads: int) -> list[list[Hypothesis]]:
        src = torch.nn.functional.pad(batch_of(*(SOURCES[i] for i in order)), (0, num_pads), value=PAD)
        return beam_search(
            model,
            src,
            beam_size=beam_size,
            num_best=beam_size,
            coverage_beta=0.5,
            min_length_ratio=1.0,
            no_repeat_ngram_size=2,
            prefixes=PREFIX_ROWS[order],
            need_weights=True,
        )

    together = find([0, 1, 2, 3, 4], 0)
    for order, num_pads in (([4, 2, 0, 1, 3], 3), ([3], 0), ([1], 2), ([2, 4], 1)):
        for i, hypotheses in zip(order, find(order, num_pads), strict=True):
            for one, other in zip(together[i], hypotheses, strict=True):
                assert_same(one, other)
                assert one.score == pytest.approx(other.score, abs=1e-10)


def sample_probabilities(
    model: Table, src: list[int], *, max_length: int, temperature: float, top_k: int, top_p: float
) -> dict[tuple[int, ...], float]:
    """The exact distribution of samples, by a walk over all sequences with Python lists."""
    found: dict[tuple[int, ...], float] = {}

    def walk(pieces: tuple[int, ...], history: int, probability: float) -> None:
        history = (3 * history + (pieces[-1] if pieces else BOS)) % 97
        choices = allowed(list(pieces), [3, 4, 5], limit=max_length)
        row = model.table[history].tolist()
        ranked = sorted(((math.exp(row[p] / temperature), p) for p in choices), reverse=True)
        ranked = ranked[: top_k or len(ranked)]
        whole, kept, share = sum(weight for weight, _ in ranked), [], 0.0
        for weight, piece in ranked:
            if share >= top_p:
                break
            kept.append((weight, piece))
            share += weight / whole
        for weight, piece in kept:
            own = probability * weight / sum(each for each, _ in kept)
            if piece == EOS:
                found[pieces] = own
            else:
                walk((*pieces, piece), history, own)

    walk((), sum(src) % 97, 1.0)
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0, "top_k": 0, "top_p": 1.0},
        {"temperature": 0.5, "top_k": 0, "top_p": 1.0},
        {"temperature": 2.0, "top_k": 3, "top_p": 1.0},
        {"temperature": 1.0, "top_k": 0, "top_p": 0.7},
        {"temperature": 1.5, "top_k": 3, "top_p": 0.8},
    ],
)
def test_samples_follow_the_exact_distribution(settings: dict[str, Any]) -> None:
    """Pearson's statistic stays within five standard deviations of its mean under the exact distribution."""
    model, num_samples = Table(6, seed=2, scale=1.0), 4000
    src = SOURCES[0]
    expected = sample_probabilities(model, src, max_length=3, **settings)
    assert sum(expected.values()) == pytest.approx(1.0)
    (samples,) = sample(model, batch_of(src), num_samples=num_samples, seed=5, max_length=3, **settings)
    counts = Counter(tuple(each.ids) for each in samples)
    assert set(counts) <= set(expected)
    common = [pieces for pieces, p in expected.items() if p * num_samples >= 5]
    rare = 1.0 - sum(expected[pieces] for pieces in common)
    cells = [(counts[pieces], expected[pieces] * num_samples) for pieces in common]
    if rare * num_samples >= 5:
        cells.append((num_samples - sum(counts[pieces] for pieces in common), rare * num_samples))
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in cells)
    degrees = len(cells) - 1
    assert abs(statistic - degrees) < 5 * math.sqrt(2 * degrees)


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}])
def test_samples_of_the_most_probable_piece_are_greedy_search(name: str, settings: dict[str, Any]) -> None:
    model, src = Table(9), batch_of(*SOURCES)
    constraints, _ = CONSTRAINTS[name]
    greedy = greedy_search(model, src, need_weights=True, **constraints)
    for one, samples in zip(
        greedy,
        sample(model, src, num_samples=2, seed=1, need_weights=True, **settings, **constraints),
        strict=True,
    ):
        for other in samples:
            assert_same(one, other)
            assert other.score == other.log_prob


def test_samples_obey_the_constraints_and_have_the_models_own_probability() -> None:
    model = Table(9)
    constraints, rules = CONSTRAINTS["all at once"]
    found = sample(
        model,
        batch_of(*SOURCES),
        num_samples=30,
        seed=0,
        temperature=3.0,
        top_k=5,
        need_weights=True,
        **constraints,
    )
    for src, samples in zip(SOURCES, found, strict=True):
        assert len({tuple(each.ids) for each in samples}) > 1
        for each in samples:
            for t, piece in enumerate([*each.ids, EOS]):
                assert piece in allowed(each.ids[:t], list(range(3, 9)), **rules(len(src)))
        forced = force_decode(
            model,
            batch_of(*[src] * 30),
            batch_of(*([BOS, *each.ids] for each in samples)),
            batch_of(*([*each.ids, EOS] for each in samples)),
            need_weights=True,
        )
        for each, again in zip(samples, forced, strict=True):
            assert again.log_prob == pytest.approx(each.log_prob, abs=1e-10)
            torch.testing.assert_close(again.weights, each.weights, rtol=0, atol=1e-12)


def test_samples_depend_on_the_seed_the_sentence_and_their_number_alone() -> None:
    model = Table(9, eos=-1.0)

    def drawn(*sentences: list[int], seed: int = 3, num_samples: int = 4) -> list[list[list[int]]]:
        found = sample(model, batch_of(*sentences), num_samples=num_samples, seed=seed)
        return [[each.ids for each in samples] for samples in found]

    together = drawn(*SOURCES)
    assert together == drawn(*SOURCES)
    assert together[::-1] == drawn(*SOURCES[::-1])
    assert [samples[:2] for samples in together] == drawn(*SOURCES, num_samples=2)
    for samples, src in zip(together, SOURCES, strict=True):
        assert [samples] == drawn(src)
        assert samples == drawn([*src, PAD, PAD])[0]
        assert len(set(map(tuple, samples))) > 1
    assert together != drawn(*SOURCES, seed=4)


def test_drawing_finds_a_possible_piece_at_either_end() -> None:
    log_probs = torch.tensor([0.0, 0.1, 0.6, 0.0, 0.3, 0.0]).log()
    ends = torch.tensor([0.0, 1.0 - 2.0**-53], dtype=torch.float64)
    for settings in ({"top_k": 0, "top_p": 1.0}, {"top_k": 5, "top_p": 1.0}, {"top_k": 0, "top_p": 0.999}):
        pieces = draw(log_probs.expand(2, 6), ends, temperature=1.0, **settings)
        assert set(pieces.tolist()) <= {1, 2, 4}
        assert len(set(pieces.tolist())) == 2


def test_finished_sentences_leave_the_batch() -> None:
    model = Table(9)
    greedy = greedy_search(model, batch_of(*SOURCES))
    lengths = [len(each.ids) + 1 for each in greedy]
    assert len(set(lengths)) > 1
    assert model.num_rows == [sum(length > t for length in lengths) for t in range(max(lengths))]
    model.num_rows.clear()
    beam_search(model, batch_of(*SOURCES), beam_size=4)
    assert model.num_rows[0] == len(SOURCES)  # before the first step all hypotheses of a sentence are one
    assert model.num_rows[1] == 4 * len(SOURCES)
    assert model.num_rows[-1] < model.num_rows[1]


def test_search_stops_as_soon_as_nothing_live_can_win() -> None:
    model = Table(9, eos=50.0)  # EOS first is all but certain; whatever goes on has lost already
    beam_search(model, batch_of(*SOURCES), beam_size=4, length_alpha=0.0)
    assert len(model.num_rows) == 1
    model.num_rows.clear()
    beam_search(model, batch_of(*SOURCES), beam_size=4, num_best=2, length_alpha=0.0)
    assert len(model.num_rows) == 2


def test_every_sentence_has_its_own_length_limit() -> None:
    model, src = Table(9, eos=-1000.0), batch_of(*SOURCES)  # never ends by itself
    limits = [math.floor(1.5 * len(sentence) + 1) for sentence in SOURCES]
    greedy = greedy_search(model, src, max_length_ratio=1.5, max_length_extra=1)
    beam = beam_search(model, src, beam_size=3, num_best=3, max_length_ratio=1.5, max_length_extra=1)
    for limit, one, hypotheses in zip(limits, greedy, beam, strict=True):
        for each in (one, *hypotheses):
            assert len(each.ids) == limit
            assert not each.finished
            assert each.log_prob < -900.0  # the end that the model did not want is paid for
    assert all(len(each.ids) == 2 for each in greedy_search(model, src, max_length=2))
    assert greedy_search(model, src, max_length=1)[0].ids == [greedy[0].ids[0]]
    capped = length_limits(torch.tensor([4, 40]), ratio=1.5, extra=1, cap=20)
    assert capped.tolist() == [7, 20]


def test_padding_and_bos_are_never_generated() -> None:
    model = Table(6)
    model.table[:, [PAD, BOS]] += 20.0
    every = [*beam_search(model, batch_of(*SOURCES), beam_size=9, num_best=9, max_length=3)]
    every.append(greedy_search(model, batch_of(*SOURCES), max_length=3))
    for each in itertools.chain.from_iterable(every):
        assert not {PAD, BOS, EOS} & set(each.ids)
        assert each.log_prob < -20.0 * 0.9  # nothing is renormalised


def test_models_without_attention_have_no_weights() -> None:
    model = Table(9, attends=False)
    src = batch_of(*SOURCES)
    assert all(each.weights is None for each in greedy_search(model, src, need_weights=True))
    assert all(each.weights is None for (each,) in beam_search(model, src, beam_size=2, need_weights=True))
    forced = force_decode(model, src[:1], batch_of([BOS, 3]), batch_of([3, EOS]), need_weights=True)
    assert forced[0].weights is None
    assert greedy_search(Table(9), src)[0].weights is None


def test_half_precision_logits_are_scored_in_single_precision() -> None:
    model = Table(9)
    rough = copy.deepcopy(model)
    rough.table = model.table.to(torch.bfloat16)
    exact = copy.deepcopy(model)
    exact.table = rough.table.float()
    src = batch_of(*SOURCES)
    for (one,), (other,) in zip(
        beam_search(rough, src, beam_size=3), beam_search(exact, src, beam_size=3), strict=True
    ):
        assert (one.ids, one.log_prob) == (other.ids, other.log_prob)


def test_an_empty_batch_gives_nothing() -> None:
    src = torch.zeros(0, 3, dtype=torch.long)
    assert greedy_search(Table(5), src) == []
    assert beam_search(Table(5), src, beam_size=2) == []
    assert sample(Table(5), src, num_samples=2, seed=0) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam_size": 0}, r"beam_size\n  Input should be greater than or equal to 1"),
        ({"beam_size": "five"}, r"beam_size\n  Input should be a valid integer"),
        ({"beam_size": 2, "num_best": 3}, "1 <= num_best <= beam_size, got 3 and 2"),
        ({"num_best": 0}, "1 <= num_best <= beam_size, got 0 and 1"),
        ({"length_alpha": -1.0}, r"length_alpha\n  Input should be greater than or equal to 0"),
        ({"length_alpha": 900.0}, r"length_alpha\n  Input should be less than or equal to 10"),
        ({"coverage_beta": math.nan}, r"coverage_beta\n  Input should be a finite number"),
        ({"max_length_extra": -3}, r"max_length_extra\n  Input should be greater than or equal to 0"),
        ({"no_repeat_ngram_size": 1.5}, r"no_repeat_ngram_size\n  Input should be a valid integer"),
        ({"min_length": 5, "max_length": 4}, "min_length=5 is above max_length=4"),
        ({"min_length_ratio": 2.5}, "min_length_ratio=2.5 is above max_length_ratio=2.0"),
        ({"temperature": 0.5}, "temperature=0.5 has no effect with sample=false"),
        ({"top_k": 5}, "top_k=5 has no effect"),
        ({"sample": "yes"}, r"sample\n  Input should be a valid boolean"),
        ({"sample": True, "beam_size": 5}, "beam_size=5 has no effect with sample=true"),
        ({"sample": True, "length_alpha": 1.0}, "length_alpha=1.0 has no effect"),
        (
            {"sample": True, "temperature": 0},
            r"temperature\n  Input should be greater than or equal to 0.000001",
        ),
        ({"sample": True, "top_p": 0.0}, r"top_p\n  Input should be greater than 0"),
        ({"sample": True, "seed": -1}, r"seed\n  Input should be greater than or equal to 0"),
        ({"prefixes": torch.tensor([[3, EOS]])}, "prefix of sentence 0 holds PAD, BOS or EOS"),
        ({"prefixes": torch.tensor([[3, 4, 3]]), "max_length": 2}, "has 3 pieces, .* may have only 2"),
    ],
)
def test_settings_out_of_range_or_without_effect_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(Table(5), batch_of([3, EOS]), **settings)


@pytest.mark.parametrize("file", sorted((CONFIGS / "decoding").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_decoding_config_is_understood(file: Path) -> None:
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIGS)):
        settings = build(hydra.compose("translate", overrides=[f"decoding={file.stem}"]).decoding, "decoding")
    found = decoding.search(Table(9), batch_of(*SOURCES), settings)
    assert [len(hypotheses) for hypotheses in found] == [1] * len(SOURCES)


def test_search_is_what_its_settings_say() -> None:
    model, src = Table(9), batch_of(*SOURCES)
    settings = {"max_length": 6, "min_length": 2, "no_repeat_ngram_size": 2, "prefixes": PREFIX_ROWS}
    ours = search(model, src, beam_size=4, num_best=3, length_alpha=0.7, coverage_beta=0.1, **settings)
    assert ours == beam_search(
        model, src, beam_size=4, num_best=3, length_alpha=0.7, coverage_beta=0.1, **settings
    )
    drawn = {"temperature": 2.0, "top_k": 4, "top_p": 0.9, "seed": 3}
    ours = search(model, src, sample=True, num_best=3, **drawn, **settings)
    assert ours == sample(model, src, num_samples=3, **drawn, **settings)
    greedy = greedy_search(model, src, **settings)
    for one, (other,) in zip(greedy, search(model, src, **settings), strict=True):
        assert_same(one, other)


def test_a_length_limit_that_no_number_holds_is_none() -> None:
    limits = length_limits(torch.tensor([2, 5]), ratio=1e19, extra=10.0, cap=8)
    assert limits.tolist() == [8, 8]
    assert (length_limits(torch.tensor([2, 5]), ratio=2.0, extra=1e19, cap=None) > 10**6).all()


@pytest.mark.parametrize(
    ("ratio", "extra", "length", "right"),
    [(0.21, 0, 300, 63), (2.1, 0.5, 15, 32), (0.29, 0, 100, 29), (0.57, 0, 100, 57), (1.15, 0.3, 18, 21)],
)
def test_length_limits_count_in_decimals(ratio: float, extra: float, length: int, right: int) -> None:
    assert length_limits(torch.tensor([length]), ratio=ratio, extra=extra, cap=None).tolist() == [right]
    settings = decoding.DecodingSettings(
        max_length_ratio=ratio, max_length_extra=extra, min_length_ratio=ratio
    )
    bounds = decoding.Constraints(Table(5), torch.tensor([length]), settings, None)
    assert bounds.limits.tolist() == [right]
    assert bounds.minimums.tolist() == [math.floor(Fraction(str(ratio)) * length)]


class BrokenLater(Table):
    """NaN from the second step on for the last hypothesis: what else there is could be taken for the best."""

    def step(self, *arguments, **keywords):
        found = super().step(*arguments, **keywords)
        if len(self.num_rows) > 1:
            found.logits[-1] = float("nan")
        return found


@pytest.mark.parametrize("place", [0, 1])
def test_one_broken_hypothesis_of_a_live_beam_is_enough(place: int) -> None:
    model, source = Table(7), [3, EOS]
    before = (3 * (sum(source) % 97) + BOS) % 97
    rows = model.table[before].clone()
    rows[[PAD, BOS, EOS]] = float("-inf")
    piece = rows.topk(2).indices[place]  # one of the two that the beam keeps
    model.table[(3 * before + int(piece)) % 97] = float("nan")
    with pytest.raises(FloatingPointError, match="sentence 0"):
        beam_search(model, batch_of(source), beam_size=2, min_length=3)


def test_broken_models_are_refused() -> None:
    src = batch_of([3, EOS])
    broken = Table(5)
    broken.table[:] = float("nan")
    with pytest.raises(FloatingPointError, match="sentence 0"):
        beam_search(broken, src, beam_size=2)
    with pytest.raises(FloatingPointError, match="sentence 0"):
        greedy_search(broken, src)
    with pytest.raises(FloatingPointError, match="sentence 0"):
        sample(broken, src, num_samples=2, seed=0)
    with pytest.raises(FloatingPointError, match="sentence 1"):
        beam_search(BrokenLater(5), batch_of([3, EOS], [4, 3, EOS]), beam_size=2)
    with pytest.raises(FloatingPointError, match="sentence 0"):  # the first sample is sound
        sample(BrokenLater(5), src, num_samples=2, seed=0, min_length=3)
    with pytest.raises(AssertionError, match="eval"):
        greedy_search(Table(5).train(), src)  # type: ignore[arg-type]
