"""Decoding as `configs/decoding/` describes it."""

from torch import Tensor

from nmt.decoding import sampling
from nmt.decoding.beam import beam_search
from nmt.decoding.constraints import check_whole
from nmt.decoding.hypotheses import Hypothesis
from nmt.models.base import Translator


def search(
    model: Translator,
    src: Tensor,
    *,
    beam_size: int = 1,
    num_best: int = 1,
    length_alpha: float = 0.0,
    coverage_beta: float = 0.0,
    sample: bool = False,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    min_length: int = 0,
    min_length_ratio: float = 0.0,
    max_length: int | None = None,
    max_length_ratio: float = 2.0,
    max_length_extra: float = 10,
    no_repeat_ngram_size: int = 0,
    prefixes: Tensor | None = None,
    need_weights: bool = False,
    **unknown: object,
) -> list[list[Hypothesis]]:
    """`num_best` translations of each sentence of `src` [B, S]: by beam search, or drawn where `sample` is set.

    A beam of one is greedy search. Drawn translations come in the order drawn, others best first. See
    `beam_search` and `sampling.sample` for what the keys mean. Raises ValueError, naming the key and its
    value, for a setting that is out of range, cannot take effect or is unknown.
    """
    if unknown:
        raise ValueError(
            f"there is no setting {', '.join(unknown)} of decoding; configs/decoding/ lists them"
        )
    check_whole("num_best", num_best, 1)
    if not isinstance(sample, bool):
        raise ValueError(f"sample must be true or false, got {sample!r}")
    idle: dict[str, tuple[float, float]] = {
        "temperature": (temperature, 1.0),
        "top_k": (top_k, 0),
        "top_p": (top_p, 1.0),
        "seed": (seed, 0),
    }
    if sample:
        idle = {
            "beam_size": (beam_size, 1),
            "length_alpha": (length_alpha, 0.0),
            "coverage_beta": (coverage_beta, 0.0),
        }
    for key, (value, neutral) in idle.items():
        if value != neutral:
            raise ValueError(
                f"{key}={value!r} has no effect with sample={str(sample).lower()}: leave it at {neutral}"
            )
    if sample:
        return sampling.sample(
            model,
            src,
            num_samples=num_best,
            seed=seed,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_length=min_length,
            min_length_ratio=min_length_ratio,
            max_length=max_length,
            max_length_ratio=max_length_ratio,
            max_length_extra=max_length_extra,
            no_repeat_ngram_size=no_repeat_ngram_size,
            prefixes=prefixes,
            need_weights=need_weights,
        )
    return beam_search(
        model,
        src,
        beam_size=beam_size,
        num_best=num_best,
        length_alpha=length_alpha,
        coverage_beta=coverage_beta,
        min_length=min_length,
        min_length_ratio=min_length_ratio,
        max_length=max_length,
        max_length_ratio=max_length_ratio,
        max_length_extra=max_length_extra,
        no_repeat_ngram_size=no_repeat_ngram_size,
        prefixes=prefixes,
        need_weights=need_weights,
    )
