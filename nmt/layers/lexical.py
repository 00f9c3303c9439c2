"""Votes of attended source words for target pieces."""

import torch
from torch import Tensor, nn

from nmt import kernels
from nmt.layers.dropout import Dropout
from nmt.layers.initialisation import initialise_linear


class LexicalVotes(nn.Module):
    """Votes of the attended source words for the next piece, independent of the context (Nguyen & Chiang 2018, 4):

        f_t = tanh(sum_s a_ts E x_s)      h_t = tanh(W f_t) + f_t      v_t = V h_t

    E x_s is the embedding of source piece s, a_ts its attention weight. In the paper h_t has an output layer of its
    own. Here v_t is added to the features that the output layer reads, so that a vote costs no table of the vocabulary.
    `dropout` is on E x_s and on h_t.
    """

    def __init__(self, size: int, features_size: int, dropout: float) -> None:
        super().__init__()
        self.hidden = kernels.Linear(size, size, bias=False)  # W
        self.vote = kernels.Linear(size, features_size, bias=False)  # V
        self.dropout = Dropout(dropout)
        for linear in (self.hidden, self.vote):
            initialise_linear(linear)

    def forward(self, weights: Tensor, words: Tensor) -> Tensor:
        """Votes [B, T, R] of words [B, S, E] under weights [B, T, S]."""
        attended = torch.tanh(weights.to(words.dtype) @ self.dropout(words))  # f_t
        return self.vote(self.dropout(torch.tanh(self.hidden(attended)) + attended))
