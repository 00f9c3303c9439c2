"""A tokenizer and a translator together: what translating and aligning share."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.data.tokenizer import Tokenizer
from nmt.decoding import BEAM, DecodingSettings
from nmt.models.base import Translator


class Model:
    """A translator in evaluation mode, and the tokenizer of its text."""

    decoding: DecodingSettings = BEAM  # how it translates if nothing else is said

    def __init__(self, tokenizer: Tokenizer, translator: Translator) -> None:
        self.tokenizer, self.translator = tokenizer, translator.eval()

    @property
    def device(self) -> torch.device:
        return next(self.translator.parameters()).device

    def pad(self, rows: Sequence[list[int]]) -> Tensor:
        """Rows of piece ids as a tensor [B, longest] on the model's device."""
        tensors = [torch.tensor(row, dtype=torch.long) for row in rows]  # an empty one has no type of its own
        return pad_sequence(tensors, batch_first=True, padding_value=self.tokenizer.pad_id).to(self.device)


def batches_by_length(lengths: dict[int, int], max_tokens: int) -> list[list[int]]:
    """Rows sorted by their lengths and cut so that sentences x longest stays within `max_tokens`."""
    batches: list[list[int]] = []
    for row in sorted(lengths, key=lambda row: -lengths[row]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
