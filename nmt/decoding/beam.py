"""Beam search.

The beam has `beam_size` slots. A step extends every live hypothesis by every piece that `Constraints` allow and keeps
the most probable extensions. A hypothesis that ends in EOS keeps its slot, so the live beam shrinks by one (as in
Bahdanau et al. 2015). Live hypotheses compete by log p alone. The penalties rank finished hypotheses by (Wu et al.
2016, eq. 14)

    log p / length_penalty(|Y|, length_alpha) + coverage_penalty(sum_t a_t, coverage_beta)

So a beam of one is greedy search, whatever the penalties (except between equally probable pieces). The search of a
sentence is over when no slot is live, or earlier if that changes nothing: when the `num_best`-th best finished score
is at least `max_live log p / length_penalty(limit + 1)`. No live hypothesis can end above this bound, as
log-probabilities only fall, the length penalty only grows, and coverage adds nothing above 0.
"""

import torch
from torch import Tensor

from nmt import kernels
from nmt.attention.masks import padding_mask
from nmt.decoding.constraints import NEVER, Constraints
from nmt.decoding.hypotheses import Ends, Hypothesis, TrailStep, no_finite, places, rebuild
from nmt.decoding.penalties import coverage_penalty, length_penalty
from nmt.decoding.settings import DecodingSettings
from nmt.models.base import Translator, select


@torch.no_grad()
@kernels.packed_weights()
def beam_search(
    model: Translator,
    src: Tensor,
    settings: DecodingSettings,
    *,
    num_best: int = 1,
    prefixes: Tensor | None = None,
    need_weights: bool = False,
) -> list[list[Hypothesis]]:
    """The `num_best` best hypotheses found for each sentence of `src` [B, S], best first.

    Returns fewer than `num_best` only if fewer exist within the constraints. Raises ValueError unless
    `1 <= num_best <= beam_size`, for coverage without attention, and as `Constraints` does; FloatingPointError if the
    model gives NaN.
    """
    _check(model, settings, num_best)
    beam_size, needs_coverage = settings.beam_size, settings.coverage_beta > 0
    needed = need_weights or needs_coverage
    src_mask = padding_mask(src, model.pad_id)
    src_lengths = src_mask.sum(dim=1)
    constraints = Constraints(model, src_lengths, settings, prefixes)
    memory = model.encode(src, src_mask)
    state = model.init_state(memory)

    # The beam starts with a single hypothesis and grows to beam_size when there are enough candidates.
    rows = place = torch.arange(src.size(0), device=src.device)  # [b] the sentences still in the batch
    tgt_prev = src.new_full((src.size(0),), model.bos_id)
    live = torch.zeros(src.size(0), 1, device=src.device)  # [b, K] log-probabilities; -inf is an empty slot
    num_finished = torch.zeros_like(rows)
    coverage = torch.zeros(src.shape, device=src.device) if needs_coverage else None  # [N, S]
    history = constraints.no_history(src.size(0), src.device)  # [N, T]
    ends = Ends.none(src.size(0), num_best, src.device)
    trail: list[TrailStep] = []
    is_broken = torch.zeros(src.size(0), dtype=torch.bool, device=src.device)
    while len(rows) > 0:
        logits, state, weights = model.step(tgt_prev, state, memory, need_weights=needed)
        log_probs = constraints.log_probs(logits, rows, len(trail), history)  # [b, K, V]
        best, parent, piece, has_nan = _extend(live, log_probs, beam_size)  # [b, K'] each
        is_broken[rows] |= has_nan
        trail.append(TrailStep.of(place, parent, piece, weights if need_weights else None))

        width = live.size(1)
        live, ending = _end(best, piece == model.eos_id, beam_size - num_finished[rows])
        num_finished[rows] += ending.sum(dim=1)
        if coverage is not None and weights is not None:
            coverage = coverage + weights
        scores = _rank(best, parent, len(trail), coverage, src_mask, rows, settings)
        ends = ends.add(rows, scores.masked_fill(~ending, NEVER), best, len(trail) - 1)

        attainable = live.amax(dim=1) / length_penalty(constraints.limits[rows] + 1, settings.length_alpha)
        going = (ends.scores[rows, -1] < attainable).nonzero().squeeze(1)
        index = torch.arange(len(rows), device=src.device).unsqueeze(1) * width + parent  # [b, K']
        if len(going) < len(rows):
            rows, live, piece, index = rows[going], live[going], piece[going], index[going]
            memory, place = select(memory, going), places(rows, src.size(0))
        tgt_prev = piece.flatten()
        state, coverage, history = select((state, coverage, history), index.flatten())
        if history is not None:
            history = torch.cat((history, tgt_prev.unsqueeze(1)), dim=1)
    if is_broken.any():
        raise FloatingPointError(no_finite(int(is_broken.nonzero()[0])))
    return rebuild(trail, ends, constraints.limits, src_lengths, model.pad_id)


def _check(model: Translator, settings: DecodingSettings, num_best: int) -> None:
    assert not model.training, "decoding needs model.eval()"
    beam_size, beta = settings.beam_size, settings.coverage_beta
    if not 1 <= num_best <= beam_size:
        raise ValueError(f"beam search needs 1 <= num_best <= beam_size, got {num_best} and {beam_size}")
    if beta > 0 and not model.has_attention:
        raise ValueError(f"coverage_beta={beta} needs attention, which this model does not have")


def _end(best: Tensor, is_eos: Tensor, num_free: Tensor) -> tuple[Tensor, Tensor]:
    """Of extensions [b, K'], best first, as many as slots are free [b]: log-probabilities of those that go on, -inf
    for others, and True for those that end.
    """
    slot = torch.arange(best.size(1), device=best.device)
    kept = (slot < num_free.unsqueeze(1)) & (best > NEVER)
    ending = kept & is_eos
    return best.masked_fill(~kept | ending, NEVER), ending


def _rank(
    best: Tensor,
    parent: Tensor,
    length: int,
    coverage: Tensor | None,
    src_mask: Tensor,
    rows: Tensor,
    settings: DecodingSettings,
) -> Tensor:
    """The scores [b, K'] of extensions of `rows` [b] if they end, with both penalties. coverage is [b * K, S]."""
    scores = best / length_penalty(length, settings.length_alpha)
    if coverage is None:
        return scores
    of_parents = coverage.unflatten(0, (len(rows), -1))  # [b, K, S]
    penalty = coverage_penalty(of_parents, src_mask[rows].unsqueeze(1), settings.coverage_beta)
    return scores + penalty.gather(1, parent)


def _extend(live: Tensor, log_probs: Tensor, beam_size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The best extensions of hypotheses with log-probabilities `live` [b, K] by pieces `log_probs` [b, K, V].

    Returns log-probabilities, parents and pieces [b, K'], best first, and [b] True if a live hypothesis meets NaN.
    """
    # The best of all are among the best beam_size of each hypothesis.
    most, pieces = kernels.best(log_probs, min(beam_size, log_probs.size(-1)))  # [b, K, C]
    has_nan = (most[..., 0].isnan() & (live > NEVER)).any(dim=1)  # NaN counts as the largest
    candidates = (live.unsqueeze(2) + most).flatten(1)  # [b, K * C]
    best, choice = candidates.topk(min(beam_size, candidates.size(1)), dim=1)
    return best, choice // most.size(2), pieces.flatten(1).gather(1, choice), has_nan
