"""The log-probability that a target piece loses without a piece that the model reads."""

import torch
from torch import Tensor

from nmt.analysis.teacher_forcing import ForcedPair, Scores
from nmt.models.base import Translator


@torch.inference_mode()
def occlude(translator: Translator, pair: ForcedPair, *, left_out: bool = False) -> Scores:
    """score_tj = log p(y_t | y_<t, x) - log p(y_t | y_<t, x without x_j) (Zeiler & Fergus 2014; Li et al. 2016).

    A piece becomes the unknown piece, of the source and of the prefix. If `left_out`, source pieces are left out; the
    prefix is not scored then, as its other pieces would move. The end of the source and the beginning of the target
    are treated as the other pieces.
    """
    whole = pair.log_probs(translator)  # [T]
    if left_out:
        if len(pair.src) == 1:  # nothing would be left
            return Scores(torch.zeros_like(whole)[:, None])
        others = ~torch.eye(len(pair.src), dtype=torch.bool, device=pair.src.device)
        without = pair.src.expand(len(pair.src), -1)[others].view(len(pair.src), -1)  # [S, S - 1]
        return Scores((whole - pair.log_probs(translator, src=without)).T)
    of_source = whole - pair.log_probs(translator, src=_each_unknown(pair.src, pair.unk_id))
    of_prefix = whole - pair.log_probs(translator, tgt_in=_each_unknown(pair.tgt_in, pair.unk_id))
    return Scores(of_source.T, of_prefix.T.tril())


def _each_unknown(ids: Tensor, unk_id: int) -> Tensor:
    """[N, N] copies of ids [N]; in copy j, piece j is unknown."""
    return ids.expand(len(ids), -1).clone().fill_diagonal_(unk_id)
