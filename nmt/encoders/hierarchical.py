"""The hierarchical encoder of documents: an encoder of words, and above it an encoder of sentences."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.attention.masks import masked_softmax
from nmt.encoders.base import Document, Encoded, Encoder
from nmt.layers.embedding import Embedding
from nmt.layers.initialisation import initialise_linear


class Vectors(nn.Identity):
    """Stand-in for an embedding in an encoder that reads vectors [B, N, M] instead of ids."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding_dim = size


class AttentionPooling(nn.Module):
    """Pool states h to a vector s (Yang et al. 2016, eq. 5 to 7).

    s = sum_t a_t h_t        a = softmax_t(u^T tanh(W h_t + b))
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(size, size)  # W, b
        initialise_linear(self.projection)
        self.u = nn.Parameter(torch.empty(size).normal_(std=size**-0.5))

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors [R, M] and weights [R, W] of states [R, W, M] under mask [R, W]."""
        weights = masked_softmax(torch.tanh(self.projection(states)) @ self.u, mask)
        return (weights.unsqueeze(1) @ states).squeeze(1), weights


class HierarchicalEncoder(Encoder):
    """Encodes the words of each sentence, then the sentences (Yang et al. 2016, 2.2).

        h_i = words(x_i)        s_i = pooled(h_i)        H = sentences(s_1, ..., s_N)

    A sentence ends with the separator piece or with the text. The states are those of words, h. The summary is that
    of the encoder of sentences; `document` has H and the weights of the pooling. The state of a word depends only on
    its sentence.

    `words` and `sentences` build an encoder from an embedding and a dropout. Raises ValueError if the vocabulary has
    no separator, or if states of words and sentences differ in width.
    """

    reads_documents = True

    def __init__(
        self,
        *,
        embedding: Embedding,
        dropout: float,
        words: Callable[..., Encoder],
        sentences: Callable[..., Encoder],
    ) -> None:
        super().__init__()
        if embedding.separator_id is None:
            raise ValueError(
                "encoder=hierarchical reads documents: set data.tokenizer.documents=true, and give ¶ between sentences"
            )
        self.separator_id, self.pad_id = embedding.separator_id, embedding.padding_idx
        self.words = words(embedding=embedding, dropout=dropout)
        self.pooling = AttentionPooling(self.words.output_size)
        self.sentences = sentences(embedding=Vectors(self.words.output_size), dropout=dropout)
        self.output_size, self.summary_size = self.words.output_size, self.sentences.summary_size
        limits = (self.words.max_length, self.sentences.max_length)  # a text has no more sentences than words
        self.max_length = min((each for each in limits if each is not None), default=None)
        if self.sentences.output_size != self.output_size:
            raise ValueError(
                f"words have states of width {self.output_size}, sentences of width {self.sentences.output_size}: "
                "give encoder.words and encoder.sentences the same"
            )

    @property
    def embedding(self) -> Embedding:
        return self.words.embedding  # type: ignore[return-value]

    def forward(self, src: Tensor, src_mask: Tensor) -> Encoded:
        layout = self._layout(src, src_mask)
        is_sentence = layout.inside.any(dim=2)  # [B, N]
        ids = src.gather(1, layout.places.flatten(1)).view_as(layout.places)
        inside = layout.inside[is_sentence]  # [R, W], R sentences in all
        states = self.words(ids.where(layout.inside, self.pad_id)[is_sentence], inside).states  # [R, W, M]
        vectors, weights = self.pooling(states, inside)
        of_words = states.new_zeros(*layout.places.shape, self.output_size)
        of_words[is_sentence] = states
        pooled = vectors.new_zeros(*is_sentence.shape, self.output_size)
        pooled[is_sentence] = vectors
        pooling = weights.new_zeros(layout.places.shape)
        pooling[is_sentence] = weights
        above = self.sentences(pooled, is_sentence)
        slots = layout.slots.unsqueeze(-1).expand(-1, -1, self.output_size)
        flat = of_words.flatten(1, 2).gather(1, slots) * src_mask.unsqueeze(-1)  # [B, S, M]
        document = layout._replace(states=above.states, mask=is_sentence, pooling=pooling)
        return Encoded(flat, src_mask, above.summary, document)

    def keep_summary_only(self) -> None:
        self.sentences.keep_summary_only()

    def _layout(self, src: Tensor, src_mask: Tensor) -> Document:
        """Find the positions of the words of each sentence. The other fields of the result are filled in later."""
        ends = (src == self.separator_id) & src_mask  # a separator belongs to the sentence that it ends
        number = (ends.cumsum(dim=1) - ends.long()).where(src_mask, 0)  # [B, S]
        if ends.any():  # after a separator, the end of the text belongs to the last sentence
            last = src_mask.sum(dim=1, keepdim=True) - 1  # [B, 1], the end of the text
            closed = ends.gather(1, (last - 1).clamp(min=0)) & (last > 0)
            number = number.scatter_add(1, last, -closed.long())
        place = torch.arange(src.size(1), device=src.device).expand_as(src)
        begins = torch.ones_like(ends)
        begins[:, 1:] = number[:, 1:] != number[:, :-1]
        within = place - place.where(begins, 0).cummax(dim=1).values  # [B, S]
        num_sentences = int(number.max()) + 1
        longest = int(within.where(src_mask, 0).max()) + 1
        slots = (number * longest + within).where(src_mask, 0)
        inside = torch.zeros(len(src), num_sentences * longest, dtype=torch.bool, device=src.device)
        places = torch.zeros_like(inside, dtype=torch.long)
        rows = torch.arange(len(src), device=src.device).unsqueeze(1).expand_as(src)[src_mask]
        inside[rows, slots[src_mask]] = True
        places[rows, slots[src_mask]] = place[src_mask]
        shape = (len(src), num_sentences, longest)
        none = src.new_zeros(0)
        return Document(none, none, none, slots, places.view(shape), inside.view(shape))
