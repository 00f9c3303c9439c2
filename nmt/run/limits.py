"""Check the search and the scores of a run before the work starts."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from nmt.decoding import DecodingSettings, length_limits, search
from nmt.errors import UserError
from nmt.models.base import Translator
from nmt.run.unknown_words import dictionary_of

log = logging.getLogger(__name__)


def check_case(scorers: Mapping[str, Any], *, lowercase: bool) -> None:
    """Raise UserError for a score that counts case if translations are in lower case."""
    for name, scorer in scorers.items():
        if lowercase and getattr(scorer, "lowercase", None) is False:
            raise UserError(
                f"data.tokenizer.lowercase=true makes translations in lower case, and metrics.{name} counts case: give "
                f"metrics.{name}.lowercase=true"
            )


def count_above_limit(
    settings: DecodingSettings, translator: Translator, src_lengths: Any, tgt_lengths: Any
) -> int:
    """Number of references that no search could give. Lengths are in pieces with the end of sentence."""
    of_model = None if translator.max_length is None else translator.max_length - 1
    cap = min((each for each in (settings.max_length, of_model) if each is not None), default=None)
    sizes, place = np.unique(src_lengths, return_inverse=True)
    limits = length_limits(
        torch.from_numpy(sizes), ratio=settings.max_length_ratio, extra=settings.max_length_extra, cap=cap
    )
    return int((np.asarray(tgt_lengths) - 1 > limits.numpy()[place]).sum())


def warn_of_limit(settings: DecodingSettings, found: Sequence[str]) -> None:
    """Log the numbers of references above the limit, given as "3 of 100 in test", as a single warning."""
    if found:
        log.warning(
            "references with more pieces than a translation may have (decoding.max_length_ratio=%g x source + "
            "max_length_extra=%g): %s. Raise decoding.max_length_ratio",
            *(settings.max_length_ratio, settings.max_length_extra, ", ".join(found)),
        )


def check_decoding(settings: DecodingSettings, translator: Translator, *, num_best: int = 1) -> None:
    """Search an empty sentence, so that settings that do not fit the model raise UserError before the work starts."""
    dictionary_of(settings, translator)
    training, device = translator.training, next(translator.parameters()).device
    try:
        search(
            translator.eval(),
            torch.tensor([[translator.eos_id]], device=device),
            settings,
            num_best=num_best,
        )
    except (ValueError, FloatingPointError) as error:
        raise UserError(f"decoding: {error}") from error
    finally:
        translator.train(training)
