"""The settings of decoding, chosen by the files in `configs/decoding/`."""

from dataclasses import replace
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from nmt.config.types import NonNegative, Whole

LEAST_RATIO = 2.0  # target pieces per source piece in the length limit, if no ratio is given or measured


def _if_null(default: float) -> BeforeValidator:
    return BeforeValidator(
        lambda value: default if value is None else value, json_schema_input_type=NonNegative | None
    )


Ratio = Annotated[float, _if_null(LEAST_RATIO), Field(ge=0, le=1_000, allow_inf_nan=False)]
LengthAlpha = Annotated[
    float,
    _if_null(1.0),
    Field(ge=0, le=10, allow_inf_nan=False),  # the penalty of a long text stays finite
]

# Settings of one search alone, with the values that change nothing
_OF_A_BEAM = {"length_alpha": 0.0, "coverage_beta": 0.0}
_OF_SAMPLES = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0}


@dataclass(frozen=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid"))
class DecodingSettings:
    """Settings of beam search with `beam_size` hypotheses, or of sampling if `sample` is set.

    A beam of one is greedy search. `length_alpha` and `coverage_beta` rank the finished hypotheses of a beam
    (`beam_search`; a `length_alpha` of None is 1); `temperature`, `top_k`, `top_p` and `seed` are for sampling
    (`sample`); `replace_unknown` and its `dictionary` change the text (`nmt.run.unknown_words`); the others limit
    both searches (`Constraints`). A `max_length_ratio` of None is LEAST_RATIO. Raises ValueError for a setting that
    is out of range or has no effect.
    """

    beam_size: Annotated[int, Field(ge=1, le=1_000)] = 5
    length_alpha: LengthAlpha = 1.0
    coverage_beta: Annotated[NonNegative, Field(le=100)] = 0.0
    sample: bool = False
    temperature: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 1.0  # quotients stay finite
    top_k: Whole = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Whole = 0
    min_length: Annotated[int, Field(ge=0, le=10_000)] = 0
    min_length_ratio: Annotated[NonNegative, Field(le=100)] = 0.0
    max_length: Annotated[int, Field(ge=1, le=10_000)] | None = None
    max_length_ratio: Ratio = LEAST_RATIO
    max_length_extra: Annotated[NonNegative, Field(le=10_000)] = 10
    no_repeat_ngram_size: Whole = 0
    replace_unknown: bool = False
    dictionary: str | None = None

    def __post_init__(self) -> None:
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length={self.min_length} is above max_length={self.max_length}")
        if self.min_length_ratio > self.max_length_ratio:
            ratios = (
                f"min_length_ratio={self.min_length_ratio} is above max_length_ratio={self.max_length_ratio}"
            )
            raise ValueError(ratios)
        if self.dictionary is not None and not self.replace_unknown:
            raise ValueError(f"dictionary={self.dictionary} has no effect without replace_unknown=true")
        if self.max_length_ratio == self.max_length_extra == 0:
            raise ValueError("max_length_ratio=0 and max_length_extra=0 leave no piece: raise one of them")
        idle = {"beam_size": 1, **_OF_A_BEAM} if self.sample else _OF_SAMPLES
        for name, neutral in idle.items():
            if getattr(self, name) != neutral:
                raise ValueError(
                    f"{name}={getattr(self, name)} has no effect with sample={str(self.sample).lower()}: "
                    f"leave it at {neutral}"
                )

    @property
    def greedy(self) -> "DecodingSettings":
        """The same limits and constraints, for greedy search."""
        return replace(self, beam_size=1, sample=False, **_OF_A_BEAM, **_OF_SAMPLES)  # type: ignore[arg-type]


BEAM = DecodingSettings()
