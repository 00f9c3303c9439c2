"""The recurrent encoder: a stack of bidirectional GRU or LSTM layers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from nmt import kernels
from nmt.attention.masks import reverse_within_length
from nmt.config.types import Count, Share
from nmt.encoders.base import Encoded, Encoder
from nmt.layers.cells import State, initialise_recurrent
from nmt.layers.dropout import Dropout
from nmt.layers.embedding import Embedding


class RecurrentEncoder(Encoder):
    """A stack of bidirectional recurrent layers, `size` units per direction (Bahdanau et al. 2015, A.2.1).

    The backward direction reads each sentence reversed within its length. So no state depends on padding, and no
    direction needs packed sequences. If `output_size` is given, the states are projected to that width. With
    `residual` each layer but the first adds its input (Wu et al. 2016, 3.1). `dropout` is on embeddings and on the
    states of each layer.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        size: Count,
        num_layers: Count,
        output_size: Count | None,
        dropout: Share,
        residual: bool,
        cell: Callable[..., Any],
    ) -> None:
        super().__init__()
        if residual and num_layers == 1:
            raise ValueError("encoder.residual=true needs a stack: set encoder.num_layers above 1")
        self.embedding, self.size, self.residual = embedding, size, residual
        sizes = [embedding.embedding_dim] + [2 * size] * (num_layers - 1)
        self.forwards = nn.ModuleList(cell(input_size=each, hidden_size=size) for each in sizes)
        self.backwards = nn.ModuleList(cell(input_size=each, hidden_size=size) for each in sizes)
        self.dropout = Dropout(dropout)
        self.projection = nn.Identity() if output_size is None else kernels.Linear(2 * size, output_size)
        self.output_size = 2 * size if output_size is None else output_size
        self.summary_size = 2 * size
        self.apply(initialise_recurrent)

    def keep_summary_only(self) -> None:
        self.projection, self.output_size = nn.Identity(), 2 * self.size

    def forward(self, src: Tensor, src_mask: Tensor) -> Encoded:
        """Encode to states [B, S, output_size] and a summary [B, 2 * size].

        The summary joins the last states of both directions in the top layer, which have read the whole sentence.
        """
        lengths = src_mask.sum(dim=1)  # [B]
        last = (lengths - 1).view(-1, 1, 1)  # [B, 1, 1]
        states = self.dropout(self.embedding(src))  # [B, S, E]
        layers: Any = zip(self.forwards, self.backwards, strict=True)
        for number, (forwards, backwards) in enumerate(layers):
            below = states
            zeros = self._zeros(below, forwards.num_states)
            rightward, _ = forwards.run(below, zeros)  # [B, S, H]
            leftward_reversed, _ = backwards.run(reverse_within_length(below, lengths), zeros)  # [B, S, H]
            ends = last.expand(-1, 1, rightward.size(2))  # [B, 1, H]
            finals = [half.gather(1, ends).squeeze(1) for half in (rightward, leftward_reversed)]
            leftward = reverse_within_length(leftward_reversed, lengths)
            states = self.dropout(torch.cat((rightward, leftward), dim=-1))  # [B, S, 2H]
            if self.residual and number > 0:
                states = states + below
        states = self.projection(states) * src_mask.unsqueeze(-1)
        return Encoded(states, src_mask, torch.cat(finals, dim=-1))

    def _zeros(self, inputs: Tensor, num_states: int) -> State:
        return (inputs.new_zeros(inputs.size(0), self.size),) * num_states
