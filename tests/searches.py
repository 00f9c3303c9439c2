"""The searches with their settings as keywords, which is shorter to read in a test."""

from typing import Any

from nmt import decoding
from nmt.decoding import DecodingSettings, Hypothesis

GIVEN = ("num_best", "prefixes", "need_weights")


def _apart(keywords: dict[str, Any]) -> tuple[DecodingSettings, dict[str, Any]]:
    given = {name: keywords.pop(name) for name in GIVEN if name in keywords}
    return DecodingSettings(**keywords), given


def beam_search(model: Any, src: Any, **keywords: Any) -> list[list[Hypothesis]]:
    settings, given = _apart(keywords)
    return decoding.beam_search(model, src, settings, **given)


def greedy_search(model: Any, src: Any, **keywords: Any) -> list[Hypothesis]:
    settings, given = _apart(keywords)
    return decoding.greedy_search(model, src, settings, **given)


def sample(model: Any, src: Any, *, num_samples: int, **keywords: Any) -> list[list[Hypothesis]]:
    keywords |= {"sample": True, "beam_size": 1, "length_alpha": 0.0, "num_best": num_samples}
    settings, given = _apart(keywords)
    return decoding.sample(model, src, settings, **given)


def search(model: Any, src: Any, **keywords: Any) -> list[list[Hypothesis]]:
    """Greedy search without settings."""
    settings, given = _apart({"beam_size": 1, "length_alpha": 0.0} | keywords)
    return decoding.search(model, src, settings, **given)
