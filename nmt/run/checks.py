"""Checks of how a run is decoded and scored, made before the work starts."""

from collections.abc import Mapping
from typing import Any

import torch

from nmt.decoding import DecodingSettings, search
from nmt.errors import UserError
from nmt.models.base import Translator


def check_case(scorers: Mapping[str, Any], *, lowercase: bool) -> None:
    """Raise UserError for a score that counts case, of translations in lower case."""
    for name, scorer in scorers.items():
        if lowercase and getattr(scorer, "lowercase", None) is False:
            raise UserError(
                f"data.tokenizer.lowercase=true makes translations in lower case, and metrics.{name} counts case: give "
                f"metrics.{name}.lowercase=true"
            )


def check_decoding(settings: DecodingSettings, translator: Translator, *, num_best: int = 1) -> None:
    """Search one empty sentence: raise UserError for settings that do not fit the model before the work starts."""
    training, device = translator.training, next(translator.parameters()).device
    try:
        search(
            translator.eval(),
            torch.tensor([[translator.eos_id]], device=device),
            settings,
            num_best=num_best,
        )
    except ValueError as error:
        raise UserError(f"decoding: {error}") from error
    finally:
        translator.train(training)
