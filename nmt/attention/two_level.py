"""Attention to documents on two levels: sentences, and words within them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.attention.base import Attended, Attention, content_score


class DocumentKeys(NamedTuple):
    """Keys of words [B, S, ...] and of sentences [B, N, ...], and their `nmt.encoders.Document`."""

    words: Any
    sentences: Any
    document: Any


class _DocumentAttention(Attention):
    """Base of both mechanisms: a content score of sentences, with the temperature and normalizer of that score."""

    is_content_score = False
    needs_documents = True

    def __init__(self, *, query_size: int, key_size: int, content: Callable[..., Attention]) -> None:
        sizes = {"query_size": query_size, "key_size": key_size}
        score = content_score(content, **sizes, user=type(self).__name__)
        super().__init__(**sizes, temperature=score.temperature, normalizer=score.normalizer)
        self.of_sentences = score

    def weigh_sentences(self, query: Tensor, keys: DocumentKeys) -> Tensor:
        """Weights b [B, T, N] over real sentences."""
        scores = self.of_sentences.score(query, keys.sentences)
        return self.of_sentences.weigh(scores, keys.document.mask.unsqueeze(1))

    @staticmethod
    def at_words(weights: Tensor, document: Any) -> Tensor:
        """Weights [B, T, N, W] of the words in each sentence, at the positions of the source: [B, T, S]."""
        return weights.flatten(2).gather(2, document.slots.unsqueeze(1).expand(-1, weights.size(1), -1))


class HierarchicalAttention(_DocumentAttention):
    """The weight of a word is the weight of its sentence times its weight in there (Ling & Rush 2017, section 3).

        b_t = softmax_i f(q_t, H_i)        a_ti = softmax_w e(q_t, h_iw)        c_t = sum_i b_ti sum_w a_tiw h_iw

    H_i is the state of sentence i, h_iw the state of its word w. f and e are two content scores, built by `content`.
    The weights b_ti a_tiw of all words sum to one. Raises ValueError if `content` builds no content score.
    """

    def __init__(self, *, query_size: int, key_size: int, content: Callable[..., Attention]) -> None:
        super().__init__(query_size=query_size, key_size=key_size, content=content)
        self.of_words = content(query_size=query_size, key_size=key_size)

    def project(self, encoded: Any) -> DocumentKeys:
        words = self.of_words.project_keys(encoded.states)
        return DocumentKeys(words, self.of_sentences.project_keys(encoded.document.states), encoded.document)

    def score(self, query: Tensor, keys: DocumentKeys) -> Tensor:
        """e(q_t, h_iw) of the words, [B, T, S]."""
        return self.of_words.score(query, keys.words)

    def weights(self, query: Tensor, keys: DocumentKeys) -> Tensor:
        """b_ti a_tiw at the positions of the source, [B, T, S]."""
        document = keys.document
        places = document.places.flatten(1).unsqueeze(1)  # [B, 1, N * W]
        scores = self.score(query, keys)
        scores = scores.gather(2, places.expand(-1, scores.size(1), -1))
        # A row without words would be NaN: a sentence that is padding keeps its slots, and weighs nothing itself.
        inside = document.inside | ~document.mask.unsqueeze(2)
        # [B, T, N, W]
        within = self.of_words.weigh(scores.unflatten(2, inside.shape[1:]), inside.unsqueeze(1))
        joint = self.weigh_sentences(query, keys).unsqueeze(3) * within
        return self.at_words(joint, document)

    def forward(
        self,
        query: Tensor,
        keys: DocumentKeys,
        values: Tensor,
        mask: Tensor,
        *,
        positions: Tensor,
        past: Tensor | None,
    ) -> Attended:
        weights = self.apply_override(self.weights(query, keys) * mask.unsqueeze(1), positions)
        return Attended(self.average(weights, values), weights, None, past)


class SentenceAttention(_DocumentAttention):
    """Attention to sentences whose words the encoder has pooled without a query (Yang et al. 2016, eq. 8 to 10).

        b_t = softmax_i f(q_t, H_i)        c_t = sum_i b_ti H_i

    The weight of a word is b_ti times its weight in the encoder's pooling.
    """

    def project(self, encoded: Any) -> DocumentKeys:
        sentences = self.of_sentences.project_keys(encoded.document.states)
        return DocumentKeys(None, sentences, encoded.document)

    def score(self, query: Tensor, keys: DocumentKeys) -> Tensor:
        """f(q_t, H_i) of the sentences, [B, T, N]."""
        return self.of_sentences.score(query, keys.sentences)

    def forward(
        self,
        query: Tensor,
        keys: DocumentKeys,
        values: Tensor,
        mask: Tensor,
        *,
        positions: Tensor,
        past: Tensor | None,
    ) -> Attended:
        document = keys.document
        weights = self.weigh_sentences(query, keys)  # [B, T, N]
        joint = weights.unsqueeze(3) * document.pooling.unsqueeze(1)
        of_words = self.at_words(joint, document) * mask.unsqueeze(1)
        if self.override is not None:  # a word stands for its sentence
            of_words = self.override(of_words, positions)
            number = (document.slots // document.places.size(2)).unsqueeze(1).expand_as(of_words)
            weights = torch.zeros_like(weights).scatter_add(2, number, of_words)
        return Attended(self.average(weights, document.states), of_words, None, past)
