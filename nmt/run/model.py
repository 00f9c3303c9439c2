"""A tokenizer with a translator: the base of translating and aligning."""

from collections.abc import Sequence

import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt import kernels
from nmt.attention import Attention
from nmt.config.build import build
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import BEAM, DecodingSettings
from nmt.errors import UserError
from nmt.models.base import Translator


class Model:
    """A translator in evaluation mode, and the tokenizer of its text."""

    decoding: DecodingSettings = BEAM  # the default search

    def __init__(self, tokenizer: Tokenizer, translator: Translator) -> None:
        self.tokenizer, self.translator = tokenizer, translator.eval()

    @property
    def device(self) -> torch.device:
        return next(self.translator.parameters()).device

    def pad(self, rows: Sequence[list[int]]) -> Tensor:
        """Rows of piece ids as a tensor [B, longest] on the model's device."""
        tensors = [torch.tensor(row, dtype=torch.long) for row in rows]  # the type is needed for an empty row
        return pad_sequence(tensors, batch_first=True, padding_value=self.tokenizer.pad_id).to(self.device)


def batches_by_length(lengths: dict[int, int], max_tokens: int) -> list[list[int]]:
    """Sort rows by length and cut them so that sentences x longest stays within `max_tokens`."""
    batches: list[list[int]] = []
    for row in sorted(lengths, key=lambda row: -lengths[row]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def build_translator(config: DictConfig, tokenizer: Tokenizer, *, trusted: Sequence[str] = ()) -> Translator:
    """The model of a configuration's `model` node, with the arguments that follow from the vocabulary."""
    translator = build(
        config,
        "model",
        trusted=trusted,
        src_vocab_size=tokenizer.src_vocab_size,
        tgt_vocab_size=tokenizer.tgt_vocab_size,
        joint_vocabulary=tokenizer.joint,
        separator_id=tokenizer.separator_id,
        pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
    if not isinstance(translator, Translator):  # of a trusted module
        raise UserError(f"model._target_={config._target_} is no translator")
    return translator


def quantise_linear_maps(translator: Translator) -> None:
    """Make the linear maps of a translator multiply in bytes (`nmt.kernels.int8`), permanently.

    Attention mechanisms of `nmt.attention` stay as they are. Raises UserError if the translator is not on a CPU.
    """
    kernels.quantise(translator, leave=Attention)
