"""Hypotheses, and the records of a search that they are rebuilt from."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """A translation of a sentence.

    ids: the pieces, without BOS and EOS.
    log_prob: `sum_t log p(y_t | y_<t, x)` in nats, including EOS if there is one.
    score: `log_prob / length_penalty + coverage_penalty` after beam and greedy search, else `log_prob`.
    finished: False if the length limit was used up, so that only EOS could follow. Of a forced target: False if it
        has no EOS.
    weights: cross-attention [T, S_i] on the CPU, with a row for each piece and for EOS and a column for each real
        source position; None if not needed or without attention.
    """

    ids: list[int]
    log_prob: float
    score: float
    finished: bool
    weights: Tensor | None


class Ends(NamedTuple):
    """The best finished hypotheses of every sentence, all [B, M], best first; a score of -inf is an empty place."""

    scores: Tensor
    log_probs: Tensor
    step: Tensor  # of EOS, from 0
    slot: Tensor  # of the beam after that step

    @classmethod
    def none(cls, num_sentences: int, num_best: int, device: torch.device) -> "Ends":
        lowest = torch.full((num_sentences, num_best), float("-inf"), device=device)
        zeros = torch.zeros(num_sentences, num_best, dtype=torch.long, device=device)
        return cls(lowest, lowest, zeros, zeros)

    def add(self, rows: Tensor, scores: Tensor, log_probs: Tensor, step: int) -> "Ends":
        """Merge the hypotheses of `rows` [b] that ended at `step`.

        scores and log_probs are [b, K] by slot; a score of -inf is a hypothesis that did not end.
        """
        new_scores = scores.new_full((self.slot.size(0), scores.size(1)), float("-inf"))  # [B, K]
        new_log_probs = torch.zeros_like(new_scores)
        new_scores[rows], new_log_probs[rows] = scores, log_probs
        slots = torch.arange(scores.size(1), device=scores.device).expand(new_scores.shape)
        added = (new_scores, new_log_probs, torch.full_like(slots, step), slots)
        both = [torch.cat(pair, dim=1) for pair in zip(self, added, strict=True)]  # [B, M + K]
        order = both[0].topk(self.slot.size(1), dim=1).indices
        return Ends(*(tensor.gather(1, order) for tensor in both))


class TrailStep(NamedTuple):
    """One step of a search over the b sentences still in the batch, from which hypotheses are rebuilt."""

    place: Tensor  # [B] the index of a sentence among the b; 0 if it has left
    parent: Tensor  # [b, K'] the slot before the step that each slot continues
    piece: Tensor  # [b, K'] the piece that each slot appended
    weights: Tensor | None  # [b, K, S] of the slots before the step

    @classmethod
    def of(cls, place: Tensor, parent: Tensor, piece: Tensor, weights: Tensor | None) -> "TrailStep":
        return cls(place, parent, piece, None if weights is None else weights.unflatten(0, (len(piece), -1)))


def places(rows: Tensor, num_sentences: int) -> Tensor:
    """The index of each of `num_sentences` sentences in `rows` [b], those still in the batch; 0 if it has left."""
    place = torch.zeros(num_sentences, dtype=torch.long, device=rows.device)
    place[rows] = torch.arange(len(rows), device=rows.device)
    return place


def rebuild(
    trail: list[TrailStep], ends: Ends, limits: Tensor, src_lengths: Tensor, pad_id: int
) -> list[list[Hypothesis]]:
    """Follow the parents back from `ends` [B, M], for all hypotheses at once.

    Raises FloatingPointError if a sentence has no hypothesis, or a log-probability that is not finite.
    """
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
        if not found[-1] or not all(math.isfinite(each.log_prob) for each in found[-1]):
            raise FloatingPointError(no_finite(i))
    return found


def no_finite(sentence: int) -> str:
    """The message for a model that gives NaN, or only minus infinity."""
    return f"the model gives sentence {sentence} of the batch no finite log-probability"
