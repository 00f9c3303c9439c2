"""Which pieces a run's choice of each target piece depends on, by several methods with one interface."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.analysis.gradients import gradient_times_input, integrated_gradients
from nmt.analysis.occlusion import occlude
from nmt.analysis.rollout import roll_out
from nmt.analysis.teacher_forcing import ForcedPair, Scores
from nmt.analysis.value_norms import attend, attend_by_value
from nmt.config.types import Explainer
from nmt.errors import UserError
from nmt.run.aligning import AligningModel

_EXPLAINERS: dict[str, Callable[..., Scores]] = {
    "attention": attend,
    "value_norm": attend_by_value,
    "rollout": roll_out,
    "gradient": gradient_times_input,
    "integrated_gradients": integrated_gradients,
    "occlusion": occlude,
}
assert _EXPLAINERS.keys() == set(get_args(Explainer))


class Explanation(NamedTuple):
    """Scores of the pieces that a run reads, for each piece of a given target; ends of sentence included.

    source [T, S]: of source piece j for target piece t.
    prefix [T, T]: of piece i of the decoder's input (the beginning of the sentence, then target pieces 0 to T - 2);
    None if the method scores the source alone. Pieces after t - 1 have 0.
    log_probs [T]: log p(y_t | y_<t, x), in nats.
    error [T]: of integrated gradients, the distance from completeness in nats; None of the other methods.
    """

    source: NDArray[np.floating]
    prefix: NDArray[np.floating] | None
    log_probs: NDArray[np.floating]
    error: NDArray[np.floating] | None
    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]

    @property
    def weights(self) -> NDArray[np.floating]:
        """The sizes of the source scores, with a sum of 1 for each target piece, for pictures and alignments."""
        sizes = np.abs(self.source)
        return sizes / np.maximum(sizes.sum(axis=1, keepdims=True), np.finfo(sizes.dtype).tiny)


def explain(
    run: AligningModel, source: str, target: str, method: Explainer = "gradient", **settings: Any
) -> Explanation:
    """Explain each piece of `target`, forced on the run, by a method.

    attention: the weights. value_norm: the norms of the weighted vectors (Kobayashi et al. 2020). rollout: the
    weights followed through the encoder of a Transformer (Abnar & Zuidema 2020). gradient: gradient times input.
    integrated_gradients (Sundararajan et al. 2017; num_steps=32). occlusion: the log-probability lost without a piece
    (left_out=False: it becomes unknown; True: source pieces are left out).

    Raises UserError for an unknown method, and for a model that the method does not fit.
    """
    if method not in _EXPLAINERS:
        raise UserError(f"method={method}: give one of {', '.join(_EXPLAINERS)}")
    if not hasattr(run.translator, "encoder"):
        raise UserError("an ensemble has several encoders: explain its runs one by one")
    with torch.inference_mode(False):  # a validation has no gradients
        pair = ForcedPair.of(run, source, target)
        scores = _EXPLAINERS[method](run.translator, pair, **settings)
    with torch.inference_mode():
        log_probs = pair.log_probs(run.translator)
    read, written = pair.src.tolist(), pair.tgt_out.tolist()
    return Explanation(
        source=_array(scores.source),
        prefix=None if scores.prefix is None else _array(scores.prefix),
        log_probs=_array(log_probs),
        error=None if scores.error is None else _array(scores.error),
        source_pieces=tuple(run.tokenizer.source_pieces(read)),
        target_pieces=tuple(run.tokenizer.target_pieces(written)),
    )


def check_explainers(run: AligningModel, methods: Iterable[Explainer]) -> None:
    """Raise UserError for a method that does not fit the run, before long work with it."""
    for method in methods:
        explain(run, "", "", method)


def _array(values: Tensor) -> NDArray[np.floating]:
    return values.double().cpu().numpy()
