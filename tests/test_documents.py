"""Documents: two levels of encoders and attention, against loops over sentences; the built-in documents; labels."""

import math
from functools import partial
from itertools import chain

import pytest
import torch

from nmt.attention import AdditiveAttention, HierarchicalAttention, SentenceAttention
from nmt.attention.masks import masked_softmax
from nmt.encoders import HierarchicalEncoder, RecurrentEncoder
from nmt.layers.cells import GRULayer
from nmt.layers.embedding import Embedding

PAD, UNK, BOS, EOS, SEP = range(5)
SIZE = 6
# Lengths of sentences; each but the last ends with a separator, the last with the end of the text.
DOCUMENTS = [[3, 1, 2], [4], [1, 1, 1, 1], [2, 5]]


def ids_of(sizes: list[int]) -> list[list[int]]:
    """Random sentences of these numbers of words, each with the sign that ends it."""
    sentences = [torch.randint(5, 20, (size,)).tolist() for size in sizes]
    return [[*words, SEP] for words in sentences[:-1]] + [[*sentences[-1], EOS]]


def batch_of(documents: list[list[list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [torch.tensor([*chain.from_iterable(sentences)]) for sentences in documents]
    src = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return src, src != PAD


def make_encoder(separator_id: int | None = SEP) -> HierarchicalEncoder:
    recurrent = partial(
        RecurrentEncoder, size=SIZE, num_layers=1, output_size=SIZE, variational=False, residual=False,
        layer_norm=False, cell=partial(GRULayer),
    )  # fmt: skip
    embedding = Embedding(20, SIZE, pad_id=PAD, separator_id=separator_id)
    encoder = HierarchicalEncoder(embedding=embedding, dropout=0.0, words=recurrent, sentences=recurrent)
    return encoder.double().eval()


@torch.no_grad()
def reference(encoder: HierarchicalEncoder, sentences: list[list[int]]):
    """States of words, sentence by sentence; vectors by loops; states of sentences: one document, no batch."""
    states, vectors, weights = [], [], []
    for words in sentences:
        src = torch.tensor([words])
        h = encoder.words(src, torch.ones_like(src, dtype=torch.bool)).states[0]
        scores = [
            float(
                encoder.pooling.u
                @ torch.tanh(encoder.pooling.projection.weight @ each + encoder.pooling.projection.bias)
            )
            for each in h
        ]
        total = sum(math.exp(score) for score in scores)
        a = [math.exp(score) / total for score in scores]
        states.append(h)
        weights.append(a)
        vectors.append(sum(weight * each for weight, each in zip(a, h, strict=True)))
    above = encoder.sentences(torch.stack(vectors)[None], torch.ones(1, len(vectors), dtype=torch.bool))
    return states, weights, above.states[0], above.summary[0]


def test_the_encoder_equals_a_loop_over_sentences():
    encoder = make_encoder()
    documents = [ids_of(sizes) for sizes in DOCUMENTS]
    src, mask = batch_of(documents)
    with torch.no_grad():
        encoded = encoder(src, mask)
    for row, sentences in enumerate(documents):
        states, weights, above, summary = reference(encoder, sentences)
        size, number = int(mask[row].sum()), len(sentences)
        torch.testing.assert_close(encoded.states[row, :size], torch.cat(states))
        assert not encoded.states[row, size:].any()
        torch.testing.assert_close(encoded.document.states[row, :number], above)
        assert encoded.document.mask[row].tolist() == [True] * number + [False] * (
            encoded.document.mask.size(1) - number
        )
        torch.testing.assert_close(encoded.summary[row], summary)
        for each, a in enumerate(weights):
            torch.testing.assert_close(
                encoded.document.pooling[row, each, : len(a)], torch.tensor(a).double()
            )


def attended(attention, encoder, documents):
    torch.manual_seed(2)
    src, mask = batch_of(documents)
    encoded = encoder(src, mask)
    query = torch.randn(len(src), 3, SIZE, dtype=torch.double)
    positions = torch.arange(3).expand(len(src), 3)
    found = attention(query, attention.project(encoded), encoded.states, mask, positions=positions, past=None)
    return query, found


def scores_of(module: AdditiveAttention, query, states):
    return [
        float(
            module.v @ torch.tanh(module.query_projection.weight @ query + module.key_projection.weight @ h)
        )
        for h in states
    ]


def softmax(scores):
    total = sum(map(math.exp, scores))
    return [math.exp(score) / total for score in scores]


@pytest.mark.parametrize("kind", [HierarchicalAttention, SentenceAttention])
@torch.no_grad()
def test_a_word_weighs_its_sentence_times_its_share_of_it(kind):
    content = partial(AdditiveAttention, size=4, temperature=1.0, normalizer=masked_softmax)
    attention = kind(query_size=SIZE, key_size=SIZE, content=content).double()
    encoder = make_encoder()
    documents = [ids_of(sizes) for sizes in DOCUMENTS]
    queries, found = attended(attention, encoder, documents)
    for row, sentences in enumerate(documents):
        states, pooling, above, _ = reference(encoder, sentences)
        for t in range(3):
            query = queries[row, t]
            b = softmax(scores_of(attention.of_sentences, query, above))
            if kind is HierarchicalAttention:
                within = [softmax(scores_of(attention.of_words, query, each)) for each in states]
                context = sum(
                    b_i * a * h
                    for b_i, own, hs in zip(b, within, states, strict=True)
                    for a, h in zip(own, hs, strict=True)
                )
            else:
                within = pooling
                context = sum(b_i * h for b_i, h in zip(b, above, strict=True))
            expected = [b_i * a for b_i, own in zip(b, within, strict=True) for a in own]
            assert found.weights[row, t, : len(expected)].tolist() == pytest.approx(expected)
            assert not found.weights[row, t, len(expected) :].any()
            torch.testing.assert_close(found.context[row, t], context)
    torch.testing.assert_close(found.weights.sum(dim=-1), torch.ones(len(documents), 3).double())
