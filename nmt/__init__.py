"""Train, score and look inside attention-based translators.

Dimensions, everywhere: B sentences, S source positions, T target positions, N = B * K hypotheses (K a beam),
V vocabulary, E embedding, H hidden size, M width of the encoder's states. Masks: True is a real token.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.run.run import Run

__all__ = ["Run"]


def __getattr__(name: str) -> Any:
    if name == "Run":  # imported on demand: models and attention need neither Hydra nor datasets
        from nmt.run.run import Run

        return Run
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")
