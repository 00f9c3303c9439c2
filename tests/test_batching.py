"""Batches: within the budget, every row once, little padding, fresh each epoch, shared equally."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from nmt.data.batching import TokenBatchSampler, collate
from nmt.errors import UserError


def lengths(num_pairs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated lengths like those of captions: about 16 pieces a side, from 2 upwards."""
    rng = np.random.default_rng(seed)
    src = 2 + rng.gamma(7.0, 2.0, num_pairs)
    tgt = np.maximum(2, src * rng.normal(1.0, 0.2, num_pairs))
    return src.astype(int), tgt.astype(int)


def make_sampler(num_pairs: int = 3000, **options: Any) -> TokenBatchSampler:
    settings: dict[str, Any] = {"max_tokens": 512, "shuffle": True, "seed": 1} | options
    return TokenBatchSampler(*lengths(num_pairs), **settings)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("max_tokens", [64, 512, 100_000])
def test_every_row_comes_once_and_no_batch_exceeds_the_budget(shuffle: bool, max_tokens: int) -> None:
    src, tgt = lengths(3000)
    sampler = make_sampler(shuffle=shuffle, max_tokens=max_tokens)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert sorted(itertools.chain.from_iterable(batches)) == list(range(3000))
        for rows in batches:
            assert len(rows) * max(src[rows].max(), tgt[rows].max()) <= max_tokens


def test_batches_are_filled_until_the_next_row_would_exceed_the_budget() -> None:
    sampler = TokenBatchSampler([4, 4, 4, 4, 5], [4, 4, 4, 4, 1], max_tokens=12, shuffle=False, seed=0)
    assert list(sampler) == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("shuffle", [True, False])
def test_padding_of_both_sides_is_half_of_what_sorting_by_one_side_leaves(shuffle: bool) -> None:
    src, tgt = lengths(30_000)
    by_tgt = np.array_split(np.argsort(tgt, kind="stable"), 150)
    cells = sum(len(rows) * (src[rows].max() + tgt[rows].max()) for rows in by_tgt)
    sampler = make_sampler(30_000, max_tokens=4096, shuffle=shuffle)
    assert sampler.padding_shares()["both"] < 0.06
    assert sampler.padding_shares()["both"] < 0.5 * (1 - (src.sum() + tgt.sum()) / cells)
    fewest = np.maximum(src, tgt).sum() / 4096
    assert len(sampler) < 1.15 * fewest


def test_the_composition_of_batches_is_drawn_anew_each_epoch() -> None:
    sampler = make_sampler()
    first = {frozenset(rows) for rows in sampler}
    sampler.set_epoch(1)
    second = {frozenset(rows) for rows in sampler}
    assert len(first & second) < 0.1 * len(first)


def test_the_order_of_batches_does_not_follow_their_lengths() -> None:
    src, _ = lengths(3000)
    means = [src[rows].mean() for rows in make_sampler()]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def test_without_shuffle_batches_are_the_same_in_every_epoch_and_the_first_few_of_all_lengths() -> None:
    sampler = make_sampler(shuffle=False)
    first = list(sampler)
    sampler.set_epoch(5)
    assert list(sampler) == first
    src, tgt = lengths(3000)
    sizes = np.maximum(src, tgt)
    assert np.mean([np.ptp(sizes[rows]) for rows in first]) < 3
    longest = [sizes[rows].max() for rows in first]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


def test_batches_depend_on_seed_and_epoch_alone() -> None:
    late, early = make_sampler(), make_sampler()
    for epoch in (0, 1, 2):
        late.set_epoch(epoch)
        list(late)
    early.set_epoch(2)
    assert list(late) == list(early)
    assert list(make_sampler(seed=2)) != list(make_sampler(seed=1))


@pytest.mark.parametrize("num_replicas", [2, 3, 8])
@pytest.mark.parametrize("shuffle", [True, False])
def test_replicas_share_one_list_equally_and_see_every_row_once(num_replicas: int, shuffle: bool) -> None:
    replicas = [
        make_sampler(shuffle=shuffle, num_replicas=num_replicas, rank=rank) for rank in range(num_replicas)
    ]
    dealt = [list(replica) for replica in replicas]
    assert {len(batches) for batches in dealt} == {len(replicas[0])}
    assert sorted(row for batches in dealt for rows in batches for row in rows) == list(range(3000))

    alone = {frozenset(rows) for rows in make_sampler(shuffle=shuffle)}
    shared = {frozenset(rows) for batches in dealt for rows in batches}
    assert len(alone - shared) < num_replicas  # only the few that were halved differ
    assert len({replica.padding_shares()["both"] for replica in replicas}) == 1


def test_batches_of_one_pair_that_cannot_be_dealt_are_refused() -> None:
    sampler = TokenBatchSampler(
        [100] * 3, [100] * 3, max_tokens=150, shuffle=False, seed=0, num_replicas=2, rank=0
    )
    with pytest.raises(UserError, match="3 batches of one pair each cannot be dealt to 2 processes"):
        len(sampler)


def test_as_many_replicas_as_pairs() -> None:
    replicas = [
        TokenBatchSampler([3] * 5, [3] * 5, max_tokens=64, shuffle=True, seed=0, num_replicas=5, rank=rank)
        for rank in range(5)
    ]
    assert sorted(rows for replica in replicas for rows in replica) == [[0], [1], [2], [3], [4]]


@pytest.mark.parametrize("position", [0, 1, 17])
def test_a_resumed_sampler_continues_inside_the_epoch(position: int) -> None:
    whole = make_sampler()
    whole.set_epoch(3)
    batches = list(whole)

    resumed = make_sampler()
    resumed.resume(3, position)
    resumed.set_epoch(3)  # the trainer says so at the start of an epoch, a resumed one too
    assert len(resumed) == len(batches)
    assert list(resumed) == batches[position:]
    assert list(resumed) == batches, "only the first iterator after resuming starts inside"


def test_another_epoch_forgets_the_position() -> None:
    sampler = make_sampler()
    sampler.resume(0, 9)
    sampler.set_epoch(1)
    assert len(list(sampler)) == len(sampler)


def test_a_pair_beyond_the_budget_is_named_with_both_numbers() -> None:
    with pytest.raises(UserError, match=r"pair 1 has 70 source and 8 target pieces, more than max_tokens=64"):
        TokenBatchSampler([5, 70], [6, 8], max_tokens=64, shuffle=True, seed=0)


def test_fewer_pairs_than_replicas_are_refused() -> None:
    with pytest.raises(UserError, match="1 sentence pairs cannot be dealt to 2 replicas"):
        TokenBatchSampler([5], [5], max_tokens=64, shuffle=True, seed=0, num_replicas=2, rank=0)
    with pytest.raises(UserError, match="0 sentence pairs"):
        TokenBatchSampler([], [], max_tokens=64, shuffle=True, seed=0)


def test_collate_pads_and_shifts() -> None:
    rows = [
        {"index": 7, "src_ids": [5, 6, 2], "tgt_ids": [8, 2]},
        {"index": 3, "src_ids": [9, 2], "tgt_ids": [4, 5, 6, 2]},
    ]
    batch = collate(rows, pad_id=0, bos_id=1)
    assert batch.indices.tolist() == [7, 3]
    assert batch.src.tolist() == [[5, 6, 2], [9, 2, 0]]
    assert batch.tgt_in.tolist() == [[1, 8, 0, 0], [1, 4, 5, 6]]
    assert batch.tgt_out.tolist() == [[8, 2, 0, 0], [4, 5, 6, 2]]
    assert all(tensor.dtype == torch.long for tensor in batch[:4])
