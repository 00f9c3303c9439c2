"""Checks of how a run is decoded and scored, made before the work starts."""

from collections.abc import Mapping
from typing import Any

import torch
from omegaconf import DictConfig

from nmt.decoding import search
from nmt.errors import UserError
from nmt.models.base import Translator

# What `search` takes beside its settings.
OF_A_SEARCH = ("model", "src", "num_best", "prefixes", "need_weights")


def check_case(scorers: Mapping[str, Any], *, lowercase: bool) -> None:
    """Raise UserError for a score that counts case, of translations in lower case."""
    for name, scorer in scorers.items():
        if lowercase and getattr(scorer, "lowercase", None) is False:
            raise UserError(
                f"data.tokenizer.lowercase=true makes translations in lower case, and metrics.{name} counts case: give "
                f"metrics.{name}.lowercase=true"
            )


def check_decoding(config: DictConfig, translator: Translator, *, num_best: int = 1) -> None:
    """Search one empty sentence, so that settings that do not go together end a command before its work: UserError."""
    for key in config:
        if key in OF_A_SEARCH:
            raise UserError(f"decoding.{key}: there is no such setting; configs/decoding/ lists them")
    training, device = translator.training, next(translator.parameters()).device
    try:
        search(
            translator.eval(),
            torch.tensor([[translator.eos_id]], device=device),
            num_best=num_best,
            **{str(key): value for key, value in config.items()},
        )
    except ValueError as error:
        raise UserError(f"decoding: {error}") from error
    finally:
        translator.train(training)
