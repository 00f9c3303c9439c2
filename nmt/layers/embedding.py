"""Embeddings of pieces."""

from torch import Tensor, nn

from nmt.layers.dropout import WordDropout


class Embedding(nn.Embedding):
    """A vector [size] for each piece, initialised from N(0, 1/size); for padding, zeros.

    With these weights a tied output layer starts with scores of unit variance. `word_dropout` is the share of pieces
    that lose their whole vector in training (Sennrich & Zhang 2019). `separator_id` is the piece between the
    sentences of a document, or None.
    """

    padding_idx: int

    def __init__(
        self,
        num_pieces: int,
        size: int,
        *,
        pad_id: int,
        word_dropout: float = 0.0,
        separator_id: int | None = None,
    ) -> None:
        super().__init__(num_pieces, size, padding_idx=pad_id)
        self.separator_id = separator_id
        nn.init.normal_(self.weight, std=size**-0.5)
        nn.init.zeros_(self.weight[pad_id])
        self.dropout = WordDropout(word_dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Embed ids [B, T] as vectors [B, T, size]."""
        return self.dropout(super().forward(ids))
