"""Gradients of a target piece's log-probability with respect to the embeddings that the model reads."""

from typing import Any

import torch
from torch import Tensor

from nmt.analysis.teacher_forcing import ForcedPair, Scores, embed, log_probs_of_vectors
from nmt.errors import UserError

_MOST_ROWS = 64  # target positions of a batch


def gradient_times_input(translator: Any, pair: ForcedPair) -> Scores:
    """score_tj = x_j · d log p_t / d x_j, for each embedding x_j (Shrikumar et al. 2016)."""
    src, tgt_in = embed(translator, pair)
    of_source, of_prefix = _gradients(translator, pair, src, tgt_in)
    return Scores((of_source * src).sum(dim=-1), (of_prefix * tgt_in).sum(dim=-1))


@torch.no_grad()
def integrated_gradients(translator: Any, pair: ForcedPair, num_steps: int = 32) -> Scores:
    """score_tj = (x_j - u) · mean_a d log p_t(u + a (x - u)) / d x_j, a from 0 to 1 (Sundararajan et al. 2017, eq. 1).

    The path begins at the embedding u of the unknown piece in all places, and is cut into `num_steps` with a gradient
    at the middle of each. By completeness the scores of a row sum up to log p_t(x) - log p_t(u); `error` is their sum
    less that.
    """
    if not (type(num_steps) is int and num_steps > 0):
        raise UserError(f"num_steps={num_steps}: give a whole number above 0")
    ends = embed(translator, pair)
    src, tgt_in = (torch.full_like(each, pair.unk_id) for each in (pair.src, pair.tgt_in))
    unknown = pair._replace(src=src, tgt_in=tgt_in)
    starts = embed(translator, unknown)
    ways = [end - start for end, start in zip(ends, starts, strict=True)]
    of_source, of_prefix = (way.new_zeros(len(pair.tgt_out), len(way)) for way in ways)
    for step in range(num_steps):
        share = (step + 0.5) / num_steps
        between = (start + share * way for start, way in zip(starts, ways, strict=True))
        at_source, at_prefix = _gradients(translator, pair, *between)
        of_source += (at_source * ways[0]).sum(dim=-1) / num_steps
        of_prefix += (at_prefix * ways[1]).sum(dim=-1) / num_steps
    gained = pair.log_probs(translator) - unknown.log_probs(translator)
    return Scores(of_source, of_prefix, of_source.sum(dim=1) + of_prefix.sum(dim=1) - gained)


def _gradients(translator: Any, pair: ForcedPair, src: Tensor, tgt_in: Tensor) -> tuple[Tensor, Tensor]:
    """d log p_t / d src [T, S, E] and d log p_t / d tgt_in [T, T, E] for each t."""
    found = []
    with torch.enable_grad():
        for places in torch.arange(len(pair.tgt_out), device=src.device).split(_MOST_ROWS):
            vectors = [
                each.detach().expand(len(places), -1, -1).clone().requires_grad_() for each in (src, tgt_in)
            ]
            log_probs = log_probs_of_vectors(translator, pair, vectors[0], vectors[1], places)
            found.append(torch.autograd.grad(log_probs.sum(), vectors))
    of_source, of_prefix = (torch.cat(each) for each in zip(*found, strict=True))
    return of_source, of_prefix
