"""Decoding by greedy search, by beam search or by sampling, as the settings say."""

from torch import Tensor

from nmt.decoding import sampling
from nmt.decoding.beam import beam_search
from nmt.decoding.hypotheses import Hypothesis
from nmt.decoding.settings import DecodingSettings
from nmt.models.base import Translator


def search(
    model: Translator,
    src: Tensor,
    settings: DecodingSettings,
    *,
    num_best: int = 1,
    prefixes: Tensor | None = None,
    need_weights: bool = False,
) -> list[list[Hypothesis]]:
    """`num_best` translations of each sentence of `src` [B, S].

    Samples come in the order drawn, other translations best first. A beam of one is searched greedily, which finds the
    same (coverage aside, which needs the weights of each step). Raises ValueError if the settings do not fit the
    model, `num_best` or the prefixes.
    """
    if not settings.sample and settings.beam_size == num_best == 1 and settings.coverage_beta == 0:
        found = sampling.greedy_search(model, src, settings, prefixes=prefixes, need_weights=need_weights)
        return [[hypothesis] for hypothesis in found]
    find = sampling.sample if settings.sample else beam_search
    return find(model, src, settings, num_best=num_best, prefixes=prefixes, need_weights=need_weights)
