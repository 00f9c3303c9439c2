"""Log-probabilities of a forced target, of changed pieces and of given embeddings."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmt.attention.masks import padding_mask
from nmt.models.base import Translator
from nmt.run.model import Model

_MOST_POSITIONS = 2048  # B x T of a batch, for its logits


class Scores(NamedTuple):
    """source [T, S], prefix [T, T] or None, error [T] or None: see `Explanation`."""

    source: Tensor
    prefix: Tensor | None = None
    error: Tensor | None = None


class ForcedPair(NamedTuple):
    """Ids of a source [S], of the decoder's input [T] and of its output [T]; `unk_id` is that of the unknown piece."""

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    unk_id: int

    @classmethod
    def of(cls, run: Model, source: str, target: str) -> "ForcedPair":
        """The ids of a pair of texts."""
        [src], [tgt] = run.tokenizer.encode_source([source]), run.tokenizer.encode_target([target])
        tgt_in = [run.tokenizer.bos_id, *tgt[:-1]]
        ids = [torch.tensor(each, device=run.device) for each in (src, tgt_in, tgt)]
        return cls(ids[0], ids[1], ids[2], run.tokenizer.unk_id)

    def log_probs(
        self, translator: Translator, src: Tensor | None = None, tgt_in: Tensor | None = None
    ) -> Tensor:
        """log p(y_t | y_<t, x) [T], or [B, T] of changed sources [B, S'] or inputs [B, T] of the decoder."""
        if src is None and tgt_in is None:
            return self.log_probs(translator, src=self.src[None])[0]
        number = len(src if src is not None else tgt_in)  # type: ignore[arg-type]
        src = self.src.expand(number, -1) if src is None else src
        tgt_in = self.tgt_in.expand(number, -1) if tgt_in is None else tgt_in
        found = []
        most = max(1, _MOST_POSITIONS // len(self.tgt_in))
        for rows, inputs in zip(src.split(most), tgt_in.split(most), strict=True):
            memory = translator.encode(rows, padding_mask(rows, translator.pad_id))
            logits = translator(memory, inputs).logits  # [B, T, V]
            chosen = self.tgt_out.expand(len(rows), -1).unsqueeze(2)
            found.append(logits.log_softmax(dim=-1).gather(2, chosen).squeeze(2))
        return torch.cat(found)


@torch.no_grad()
def embed(translator: Any, pair: ForcedPair) -> tuple[Tensor, Tensor]:
    """The embeddings of the source [S, E] and of the decoder's input [T, E]."""
    return translator.encoder.embedding(pair.src[None])[0], translator.decoder.embedding(pair.tgt_in[None])[0]


def log_probs_of_vectors(
    translator: Any, pair: ForcedPair, src: Tensor, tgt_in: Tensor, places: Tensor
) -> Tensor:
    """log p(y_t | …) [B] at t = places [B], for embeddings of sources [B, S, E] and of decoder inputs [B, T, E]."""
    ids, inputs = pair.src.expand(len(places), -1), pair.tgt_in.expand(len(places), -1)
    with _in_place_of(translator.encoder.embedding, src):
        memory = translator.encode(ids, padding_mask(ids, translator.pad_id))
    with _in_place_of(translator.decoder.embedding, tgt_in):
        features, _ = translator.read(memory, inputs)  # [B, T, R]
    rows = torch.arange(len(places), device=places.device)
    logits = translator.output(features[rows, places])
    return logits.log_softmax(dim=-1)[rows, pair.tgt_out[places]]


@contextmanager
def _in_place_of(embedding: nn.Module, vectors: Tensor) -> Iterator[None]:
    """Let an embedding return `vectors`."""
    hook = embedding.register_forward_hook(lambda module, ids, found: vectors)
    try:
        yield
    finally:
        hook.remove()
