"""Greedy search and sampling: every hypothesis is extended independently."""

import hashlib
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from nmt import kernels
from nmt.attention.masks import padding_mask
from nmt.decoding.constraints import Constraints
from nmt.decoding.hypotheses import Ends, Hypothesis, TrailStep, places, rebuild
from nmt.decoding.penalties import length_penalty
from nmt.decoding.settings import BEAM, DecodingSettings
from nmt.models.base import Translator, select

# Chooses pieces [b, K] from log-probabilities [b, K, V] of the sentences `rows` [b] at a step, from 0.
Choose = Callable[[Tensor, Tensor, int], Tensor]


@torch.no_grad()
def greedy_search(
    model: Translator,
    src: Tensor,
    settings: DecodingSettings = BEAM,
    *,
    prefixes: Tensor | None = None,
    need_weights: bool = False,
) -> list[Hypothesis]:
    """The most probable piece at each step, one hypothesis for each sentence of `src` [B, S], in order.

    Of the settings, only the constraints and `length_alpha` apply. The score is that of beam search:
    `log_prob / length_penalty`. Raises ValueError as `Constraints` does, FloatingPointError if the model gives NaN.
    """
    src_mask = padding_mask(src, model.pad_id)
    constraints = Constraints(model, src_mask.sum(dim=1), settings, prefixes)

    def most_probable(log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
        return kernels.best(log_probs, 1)[1].squeeze(-1)

    found = _follow(model, src, src_mask, constraints, most_probable, width=1, need_weights=need_weights)
    return [
        replace(each, score=each.log_prob / length_penalty(len(each.ids) + 1, settings.length_alpha))
        for (each,) in found
    ]


@torch.no_grad()
def sample(
    model: Translator,
    src: Tensor,
    settings: DecodingSettings,
    *,
    num_best: int,
    prefixes: Tensor | None = None,
    need_weights: bool = False,
) -> list[list[Hypothesis]]:
    """Draw `num_best` translations for each sentence of `src` [B, S], in the order drawn (see `draw`).

    A sample depends only on the seed, the sentence and the number of the sample: not on other sentences in the batch,
    nor on the number of samples. Log-probability and score are those of the model, whatever the temperature. Raises
    ValueError as `Constraints` does, FloatingPointError if the model gives NaN.
    """
    src_mask = padding_mask(src, model.pad_id)
    constraints = Constraints(model, src_mask.sum(dim=1), settings, prefixes)
    sentences = [ids[mask].tolist() for ids, mask in zip(src, src_mask, strict=True)]
    uniforms = _uniforms(sentences, num_best, constraints.largest_limit + 1, settings.seed).to(src.device)

    def draw_pieces(log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
        return draw(
            log_probs,
            uniforms[rows, :, step],
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
        )

    return _follow(model, src, src_mask, constraints, draw_pieces, width=num_best, need_weights=need_weights)


def draw(log_probs: Tensor, uniforms: Tensor, *, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Draw pieces [...] with `p(y) ** (1 / temperature)`, normalised, from `log_probs` [..., V].

    `top_k` > 0 keeps only the k most probable pieces (Fan et al. 2018). Then `top_p` < 1 keeps the fewest most
    probable pieces that hold at least a share `top_p` of the rest (Holtzman et al. 2020). `uniforms` [...] in [0, 1)
    become pieces through the inverse of the cumulative distribution.
    """
    scores = log_probs.double() / temperature
    pieces = None
    if 0 < top_k < scores.size(-1) or top_p < 1:
        scores, pieces = scores.topk(min(top_k or scores.size(-1), scores.size(-1)), dim=-1)  # sorted
    probs = scores.softmax(dim=-1)
    if top_p < 1:
        probs = probs.masked_fill(probs.cumsum(dim=-1) - probs >= top_p, 0.0)
    cumulative = probs.cumsum(dim=-1)
    # u is at most 1 - 2 ** -53, so that u * total rounds to less than the total, and a piece is always found
    # (but for NaN, which the log-probabilities report).
    targets = uniforms.unsqueeze(-1) * cumulative[..., -1:]
    choice = torch.searchsorted(cumulative, targets, right=True).clamp(max=probs.size(-1) - 1)
    return (choice if pieces is None else pieces.gather(-1, choice)).squeeze(-1)


def _uniforms(sentences: list[list[int]], num_samples: int, num_steps: int, seed: int) -> Tensor:
    """Uniform numbers in [0, 1) [B, num_samples, num_steps]; seed, sentence and number seed the stream of a sample."""
    generator = torch.Generator()
    uniforms = torch.empty(len(sentences), num_samples, num_steps, dtype=torch.float64)
    for i, ids in enumerate(sentences):
        for number in range(num_samples):
            digest = hashlib.blake2b(repr((seed, ids, number)).encode(), digest_size=8).digest()
            generator.manual_seed(int.from_bytes(digest, "big"))
            uniforms[i, number] = torch.rand(num_steps, generator=generator, dtype=torch.float64)
    return uniforms


@kernels.packed_weights()
def _follow(
    model: Translator,
    src: Tensor,
    src_mask: Tensor,
    constraints: Constraints,
    choose: Choose,
    *,
    width: int,
    need_weights: bool,
) -> list[list[Hypothesis]]:
    """Extend `width` hypotheses of each sentence of `src` [B, S] by the pieces that `choose` returns, until EOS.

    A sentence leaves the batch when all of its hypotheses have ended.
    """
    assert not model.training, "decoding needs model.eval()"
    memory = model.encode(src, src_mask)
    rows = place = torch.arange(src.size(0), device=src.device)  # [b] the sentences still in the batch
    state = select(model.init_state(memory), rows.repeat_interleave(width))
    tgt_prev = src.new_full((src.size(0) * width,), model.bos_id)
    history = constraints.no_history(len(tgt_prev), src.device)
    slots = torch.arange(width, device=src.device)
    live = torch.ones(src.size(0), width, dtype=torch.bool, device=src.device)  # [b, K]
    # Of all sentences, and of those still in the batch
    log_prob = total = torch.zeros(src.size(0), width, device=src.device)
    end_step = last = torch.zeros(src.size(0), width, dtype=torch.long, device=src.device)
    trail: list[TrailStep] = []
    while len(rows) > 0 and len(trail) <= constraints.largest_limit:  # NaN need not end by itself
        logits, state, weights = model.step(tgt_prev, state, memory, need_weights=need_weights)
        log_probs = constraints.log_probs(logits, rows, len(trail), history)  # [b, K, V]
        piece = choose(log_probs, rows, len(trail))  # [b, K]
        chosen = log_probs.gather(2, piece.unsqueeze(2)).squeeze(2)
        total = total + chosen.masked_fill(~live, 0.0)
        last = last.masked_fill(live, len(trail))
        trail.append(TrailStep.of(place, slots.expand_as(piece), piece, weights))
        live = live & (piece != model.eos_id)
        tgt_prev = piece.flatten()
        if history is not None:
            history = torch.cat((history, tgt_prev.unsqueeze(1)), dim=1)
        going = live.any(dim=1).nonzero().squeeze(1)
        if len(going) < len(rows):
            log_prob, end_step = _put(log_prob, rows, total), _put(end_step, rows, last)
            rows, live, total, last = rows[going], live[going], total[going], last[going]
            place = places(rows, src.size(0))
            index = (going.unsqueeze(1) * width + slots).flatten()
            tgt_prev, state, history = select((tgt_prev, state, history), index)
            memory = select(memory, going)
    log_prob, end_step = _put(log_prob, rows, total), _put(end_step, rows, last)
    ends = Ends(log_prob, log_prob, end_step, slots.expand_as(end_step))
    return rebuild(trail, ends, constraints.limits, src_mask.sum(dim=1), model.pad_id)


def _put(whole: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    return whole.to(values.dtype).index_copy(0, rows, values)
