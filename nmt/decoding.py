"""Greedy search, beam search and forced decoding, over the `Translator` interface only.

B sentences, K hypotheses a sentence (the beam), N = B * K, S source positions, V vocabulary, T steps. Every
probability is the model's own: what a search may not choose is left out, and nothing is renormalised, so that
the log-probability of a hypothesis is the one that `force_decode` gives to the same pieces.

A length limit counts pieces without EOS. A hypothesis that has used its limit up may only end: EOS is scored
there as everywhere else. The space searched is thus exactly the sequences of at most `limit` pieces, each
closed by EOS, and a beam as wide as that space finds its best members.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.masks import padding_mask
from nmt.models.base import Translator, select


@dataclass(frozen=True)
class Hypothesis:
    """One translation of one sentence.

    ids: the pieces, without BOS and EOS.
    log_prob: `sum_t log p(y_t | y_<t, x)` in nats, EOS included where there is one.
    score: what the search ranks by, `log_prob / length_penalty`; `log_prob` where nothing is ranked.
    finished: False where the length limit was used up, so that nothing but EOS could follow (or, of a forced
        target, where it holds no EOS).
    weights: cross-attention [T, S_i] on the CPU, a row for each piece and one for EOS, a column for each real
        position of that sentence; None where not asked for or where the model has none.
    """

    ids: list[int]
    log_prob: float
    score: float
    finished: bool
    weights: Tensor | None


def length_penalty(length: Any, alpha: float) -> Any:
    """`((5 + |Y|) / 6) ** alpha` (Wu et al. 2016, eq. 14); |Y| counts EOS. Exactly 1 where alpha is 0."""
    return ((5.0 + length) / 6.0) ** alpha


def length_limits(src_lengths: Tensor, *, ratio: float, extra: int, cap: int | None) -> Tensor:
    """How many pieces each translation may have: `min(cap, floor(ratio * |x| + extra))` [B].

    |x| [B] counts the real source positions, EOS included.
    """
    limits = (ratio * src_lengths + extra).floor().long()
    return limits if cap is None else limits.clamp(max=cap)


@torch.no_grad()
def greedy_search(
    model: Translator,
    src: Tensor,
    *,
    max_length_ratio: float = 2.0,
    max_length_extra: int = 10,
    max_length: int | None = None,
    min_length: int = 0,
    need_weights: bool = False,
) -> list[Hypothesis]:
    """The most probable piece at each step, one hypothesis for each sentence of `src` [B, S], in order.

    A sentence leaves the batch when it ends. Lengths are limited by `length_limits`, and at least
    `min_length` pieces come before EOS (where the limit allows). The score is the log-probability. Raises
    FloatingPointError where the model gives NaN.
    """
    assert not model.training, "decoding needs model.eval()"
    src_mask = padding_mask(src, model.pad_id)
    src_lengths = src_mask.sum(dim=1)
    limits = length_limits(src_lengths, ratio=max_length_ratio, extra=max_length_extra, cap=max_length)
    choices = _Choices(model, limits, min_length)
    memory = model.encode(src, src_mask)
    state = model.init_state(memory)

    rows = torch.arange(src.size(0), device=src.device)  # the sentences still in the batch
    tgt_prev = src.new_full((src.size(0),), model.bos_id)
    log_prob = None
    end_step = torch.zeros_like(rows)
    trail: list[_TrailStep] = []
    while len(rows) > 0:
        logits, state, weights = model.step(tgt_prev, state, memory, need_weights=need_weights)
        best, piece = choices.log_probs(logits, len(trail), limits[rows]).max(dim=-1)  # [b]
        if log_prob is None:
            log_prob = best.new_zeros(src.size(0))
        log_prob[rows] += best
        end_step[rows] = len(trail)
        trail.append(_TrailStep.of(rows, torch.zeros_like(piece)[:, None], piece[:, None], weights, src))
        going = (piece != model.eos_id).nonzero().squeeze(1)
        tgt_prev = piece
        if len(going) < len(rows):
            rows, tgt_prev = rows[going], tgt_prev[going]
            state, memory = select(state, going), select(memory, going)
    if log_prob is None:
        return []
    ends = _Ends(log_prob[:, None], log_prob[:, None], end_step[:, None], torch.zeros_like(end_step)[:, None])
    return [hypotheses[0] for hypotheses in _rebuild(trail, ends, limits, src_lengths, model.pad_id)]


@torch.no_grad()
def beam_search(
    model: Translator,
    src: Tensor,
    *,
    beam_size: int,
    num_best: int = 1,
    length_alpha: float = 1.0,
    max_length_ratio: float = 2.0,
    max_length_extra: int = 10,
    max_length: int | None = None,
    min_length: int = 0,
    need_weights: bool = False,
) -> list[list[Hypothesis]]:
    """The `num_best` best hypotheses found for each sentence of `src` [B, S], best first.

    The beam has `beam_size` slots. A step extends every live hypothesis by every piece and keeps the best;
    one that ends in EOS keeps its slot, so that the live beam shrinks by one (as in Bahdanau et al. 2015). A
    beam of one is therefore greedy search, whatever `length_alpha`. The search of a sentence is over when no
    slot is live, or earlier where that changes nothing: when the `num_best`-th best finished score is at
    least `max_live log p / length_penalty(limit + 1)`. This bounds all that a live hypothesis can still
    reach, as log-probabilities only fall and the penalty only grows. Hypotheses are ranked by
    `log p / length_penalty(|Y|, length_alpha)` (Wu et al. 2016, eq. 14).

    Fewer than `num_best` come back only where fewer exist within the length limit. Raises ValueError unless
    `1 <= num_best <= beam_size` and `length_alpha >= 0`, FloatingPointError where the model gives NaN.
    """
    assert not model.training, "decoding needs model.eval()"
    if not 1 <= num_best <= beam_size:
        raise ValueError(f"beam search needs 1 <= num_best <= beam_size, got {num_best} and {beam_size}")
    if length_alpha < 0:
        raise ValueError(f"length_alpha must be at least 0, got {length_alpha}")
    src_mask = padding_mask(src, model.pad_id)
    src_lengths = src_mask.sum(dim=1)
    limits = length_limits(src_lengths, ratio=max_length_ratio, extra=max_length_extra, cap=max_length)
    choices = _Choices(model, limits, min_length)
    memory = model.encode(src, src_mask)
    state = model.init_state(memory)

    # The beam starts one hypothesis wide and grows to beam_size as soon as there are so many candidates.
    rows = torch.arange(src.size(0), device=src.device)  # [b] the sentences still in the batch
    tgt_prev = src.new_full((src.size(0),), model.bos_id)
    live = torch.zeros(src.size(0), 1, device=src.device)  # [b, K] log-probabilities; -inf is an empty slot
    num_finished = torch.zeros_like(rows)
    ends = _Ends.none(src.size(0), num_best, src.device)
    trail: list[_TrailStep] = []
    while len(rows) > 0:
        logits, state, weights = model.step(tgt_prev, state, memory, need_weights=need_weights)
        width = live.size(1)
        row_limits = limits[rows]
        log_probs = choices.log_probs(logits, len(trail), row_limits.repeat_interleave(width))
        vocab_size = log_probs.size(-1)
        candidates = (live.unsqueeze(2) + log_probs.view(-1, width, vocab_size)).flatten(1)  # [b, K * V]
        best, choice = candidates.topk(min(beam_size, candidates.size(1)), dim=1)  # [b, K']
        parent, piece = choice // vocab_size, choice % vocab_size
        trail.append(_TrailStep.of(rows, parent, piece, weights, src))

        slot = torch.arange(best.size(1), device=src.device)
        kept = (slot < beam_size - num_finished[rows].unsqueeze(1)) & (best > float("-inf"))
        ending = kept & (piece == model.eos_id)
        live = best.masked_fill(~kept | ending, float("-inf"))
        num_finished[rows] += ending.sum(dim=1)
        finished = best.masked_fill(~ending, float("-inf"))
        ends = ends.add(rows, finished, len(trail) - 1, length_penalty(len(trail), length_alpha))

        attainable = live.amax(dim=1) / length_penalty(row_limits + 1, length_alpha)
        going = (ends.scores[rows, -1] < attainable).nonzero().squeeze(1)
        index = torch.arange(len(rows), device=src.device).unsqueeze(1) * width + parent  # [b, K']
        if len(going) < len(rows):
            rows, live, piece, index = rows[going], live[going], piece[going], index[going]
            memory = select(memory, going)
        state = select(state, index.flatten())
        tgt_prev = piece.flatten()
    return _rebuild(trail, ends, limits, src_lengths, model.pad_id)


@torch.no_grad()
def force_decode(
    model: Translator, src: Tensor, tgt_in: Tensor, tgt_out: Tensor, *, need_weights: bool = False
) -> list[Hypothesis]:
    """What the model makes of given targets: their log-probabilities and attention, one for each sentence.

    `src` [B, S]; `tgt_in` [B, T] begins with BOS; `tgt_out` [B, T] is what follows each of its pieces, ending
    with EOS. Padded positions of `tgt_out` count for nothing. The score is the log-probability.
    """
    assert not model.training, "decoding needs model.eval()"
    src_mask = padding_mask(src, model.pad_id)
    logits, weights = model.forward(model.encode(src, src_mask), tgt_in, need_weights=need_weights)
    tgt_mask = padding_mask(tgt_out, model.pad_id)
    chosen = _log_softmax(logits).gather(2, tgt_out.unsqueeze(2)).squeeze(2)  # [B, T]
    log_probs = chosen.masked_fill(~tgt_mask, 0.0).sum(dim=1).tolist()
    weights = None if weights is None else weights.cpu()
    hypotheses = []
    lengths = zip(tgt_mask.sum(dim=1).tolist(), src_mask.sum(dim=1).tolist(), strict=True)
    for i, (tgt_length, src_length) in enumerate(lengths):
        pieces = tgt_out[i, :tgt_length].tolist()
        finished = bool(pieces) and pieces[-1] == model.eos_id
        ids = pieces[:-1] if finished else pieces
        own_weights = None if weights is None else weights[i, :tgt_length, :src_length].clone()
        hypotheses.append(Hypothesis(ids, log_probs[i], log_probs[i], finished, own_weights))
    return hypotheses


def _log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities in nats, in float32 or better whatever precision the model computes in."""
    return logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


class _Choices:
    """Which pieces may come next: the one place where a search changes the model's log-probabilities."""

    def __init__(self, model: Translator, limits: Tensor, min_length: int) -> None:
        self.pad_id, self.bos_id = model.pad_id, model.bos_id
        self.eos_id = model.eos_id
        self.min_length = min_length
        self.smallest_limit = int(limits.min()) if limits.numel() else 0

    def log_probs(self, logits: Tensor, num_pieces: int, limits: Tensor) -> Tensor:
        """Log-probabilities [N, V] from `logits` [N, V], -inf where a piece may not come next.

        PAD and BOS never come; EOS comes after at least `min_length` pieces, and alone at a limit [N].
        """
        log_probs = _log_softmax(logits)
        eos = log_probs[:, self.eos_id].clone()
        log_probs[:, self.pad_id] = float("-inf")
        log_probs[:, self.bos_id] = float("-inf")
        if num_pieces >= self.smallest_limit:
            log_probs.masked_fill_((num_pieces >= limits).unsqueeze(1), float("-inf"))
        if num_pieces < self.min_length:
            eos.masked_fill_(num_pieces < limits, float("-inf"))
        log_probs[:, self.eos_id] = eos
        return log_probs


class _Ends(NamedTuple):
    """The best finished hypotheses of every sentence, each [B, M], best first; score -inf is none."""

    scores: Tensor
    log_probs: Tensor
    step: Tensor  # at which EOS came, from 0
    slot: Tensor  # of the beam after that step

    @classmethod
    def none(cls, num_sentences: int, num_best: int, device: torch.device) -> "_Ends":
        lowest = torch.full((num_sentences, num_best), float("-inf"), device=device)
        zeros = torch.zeros(num_sentences, num_best, dtype=torch.long, device=device)
        return cls(lowest, lowest, zeros, zeros)

    def add(self, rows: Tensor, log_probs: Tensor, step: int, penalty: float) -> "_Ends":
        """Merge what `rows` [b] ended at `step`: `log_probs` [b, K] by slot, -inf where one did not end."""
        new = log_probs.new_full((self.slot.size(0), log_probs.size(1)), float("-inf"))  # [B, K]
        new[rows] = log_probs
        slots = torch.arange(new.size(1), device=new.device).expand(new.shape)
        added = (new / penalty, new, torch.full_like(slots, step), slots)
        both = [torch.cat(pair, dim=1) for pair in zip(self, added, strict=True)]  # [B, M + K]
        order = both[0].topk(self.slot.size(1), dim=1).indices
        return _Ends(*(tensor.gather(1, order) for tensor in both))


class _TrailStep(NamedTuple):
    """One step of a search over the b sentences then in the batch, from which hypotheses are rebuilt."""

    place: Tensor  # [B] where a sentence stands among the b; 0 where it has left
    parent: Tensor  # [b, K'] the slot, before the step, that each slot continues
    piece: Tensor  # [b, K'] the piece that it appended
    weights: Tensor | None  # [b, K, S] of the slots before the step

    @classmethod
    def of(
        cls, rows: Tensor, parent: Tensor, piece: Tensor, weights: Tensor | None, src: Tensor
    ) -> "_TrailStep":
        place = torch.zeros(src.size(0), dtype=torch.long, device=src.device)
        place[rows] = torch.arange(len(rows), device=src.device)
        if weights is not None:
            weights = weights.view(len(rows), -1, src.size(1))
        return cls(place, parent, piece, weights)


def _rebuild(
    trail: list[_TrailStep], ends: _Ends, limits: Tensor, src_lengths: Tensor, pad_id: int
) -> list[list[Hypothesis]]:
    """Follow the parents back from `ends` [B, M], for all hypotheses at once."""
    slot = torch.zeros_like(ends.slot)
    ids, rows_of_weights = [], []
    for step in reversed(range(len(trail))):
        place, parent, piece, weights = trail[step]
        slot = torch.where(ends.step == step, ends.slot, slot)
        within = ends.step >= step  # [B, M]
        row = place.unsqueeze(1)
        ids.append(piece[row, slot].masked_fill(~within, pad_id))
        slot = torch.where(within, parent[row, slot], 0)
        if weights is not None:
            rows_of_weights.append(weights[row, slot])  # [B, M, S]
    if not ids:
        return []
    all_ids = torch.stack(ids[::-1], dim=-1).tolist()  # [B, M, T]
    all_weights = torch.stack(rows_of_weights[::-1], dim=2).cpu() if rows_of_weights else None
    scores, log_probs, last_steps = ends.scores.tolist(), ends.log_probs.tolist(), ends.step.tolist()
    found: list[list[Hypothesis]] = []
    for i, (limit, src_length) in enumerate(zip(limits.tolist(), src_lengths.tolist(), strict=True)):
        found.append([])
        for m, (score, log_prob, num_pieces) in enumerate(
            zip(scores[i], log_probs[i], last_steps[i], strict=True)
        ):
            if score == float("-inf"):
                break
            pieces = all_ids[i][m][:num_pieces]
            own_weights = None
            if all_weights is not None:
                own_weights = all_weights[i, m, : num_pieces + 1, :src_length].clone()
            found[-1].append(Hypothesis(pieces, log_prob, score, num_pieces < limit, own_weights))
        if not found[-1] or not math.isfinite(found[-1][0].log_prob):
            raise FloatingPointError(f"the model gives sentence {i} of the batch no finite log-probability")
    return found
