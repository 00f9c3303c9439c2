"""Cross-attention followed through the self-attention of the encoder."""

from typing import Any

import torch

from nmt.analysis.teacher_forcing import ForcedPair, Scores
from nmt.errors import UserError


@torch.inference_mode()
def roll_out(translator: Any, pair: ForcedPair) -> Scores:
    """R = A'_L ... A'_1, A'_l = (A_l + I) / 2, score = C R (Abnar & Zuidema 2020, eq. 1).

    A_l is the mean over heads of layer l of the encoder, I stands for its residual connection, and C is the mean over
    layers and heads of the cross-attention. Raises UserError for a model without self-attention in the encoder.
    """
    ids = pair.src[None]
    cross, encoder_self, _ = translator.attentions(
        ids, torch.ones_like(ids, dtype=torch.bool), pair.tgt_in[None]
    )
    if cross is None or encoder_self is None:
        raise UserError(
            "rollout follows self-attention through the encoder of a Transformer: this run has none"
        )
    rolled = torch.eye(len(pair.src), dtype=cross.dtype, device=cross.device)
    for layer in encoder_self[0].mean(dim=1):  # [S, S]
        rolled = (layer @ rolled + rolled) / 2
    return Scores(cross[0].mean(dim=(0, 1)) @ rolled)
