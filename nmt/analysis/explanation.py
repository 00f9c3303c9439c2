"""Which pieces a run's choice of each target piece depends on, by several methods with one interface."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.analysis.gradients import gradient_times_input, integrated_gradients
from nmt.analysis.occlusion import occlude
from nmt.analysis.rollout import roll_out
from nmt.analysis.teacher_forcing import Pair, Scores
from nmt.analysis.value_norms import attend, attend_by_value
from nmt.errors import UserError
from nmt.run.run import Run

Explainer = Literal["attention", "value_norm", "rollout", "gradient", "integrated_gradients", "occlusion"]
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
    run: Run, source: str, target: str, method: Explainer = "gradient", **settings: Any
) -> Explanation:
    """Explain each piece of `target`, forced on the run, by a method.

    attention: the weights. value_norm: the norms of what the weights multiply (Kobayashi et al. 2020). rollout: the
    weights followed through the encoder of a Transformer (Abnar & Zuidema 2020). gradient: gradient times input.
    integrated_gradients (Sundararajan et al. 2017; num_steps=32). occlusion: the log-probability lost without a piece
    (left_out=False: it becomes unknown; True: source pieces are left out).

    Raises UserError for an unknown method, and for a model that the method does not fit.
    """
    if method not in _EXPLAINERS:
        raise UserError(f"method={method}: give one of {', '.join(_EXPLAINERS)}")
    if not hasattr(run.translator, "encoder"):
        raise UserError("an ensemble has several encoders: explain its runs one by one")
    tokenizer = run.tokenizer
    [src], [tgt] = tokenizer.encode_source([source]), tokenizer.encode_target([target])
    ids = (torch.tensor(each, device=run.device) for each in (src, [tokenizer.bos_id, *tgt[:-1]], tgt))
    pair = Pair(*ids, unk_id=tokenizer.unk_id)
    scores = _EXPLAINERS[method](run.translator, pair, **settings)
    with torch.inference_mode():
        log_probs = pair.log_probs(run.translator)
    arrays = (
        None if each is None else each.double().cpu().numpy()
        for each in (scores.source, scores.prefix, log_probs, scores.error)
    )
    return Explanation(*arrays, tuple(tokenizer.source_pieces(src)), tuple(tokenizer.target_pieces(tgt)))
