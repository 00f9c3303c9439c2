"""Guided alignment: from links between words to the loss that draws attention to them."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from nmt.alignment import align_words, piece_links, split_units, words_from_pieces
from nmt.data.batching import collate
from nmt.data.datamodule import TranslationDataModule
from nmt.data.tokenizer import Tokenizer
from nmt.training.losses import guided_alignment

EXACT = {"rtol": 0, "atol": 1e-10}
# Source: word 0 in two pieces, words 1 and 2 in one each, then the end. Target: word 1 in two pieces.
SRC_WORDS, TGT_WORDS = [0, 0, 1, 2, -1], [0, 1, 1, 2, -1]
LINKS = {(0, 0), (1, 1), (2, 1)}


def test_every_piece_of_a_word_is_linked_to_every_piece_of_its_words():
    assert piece_links(LINKS, TGT_WORDS, SRC_WORDS) == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 2), (2, 3)]
    assert piece_links(set(), TGT_WORDS, SRC_WORDS) == []


def rows():
    links = [place for pair in piece_links(LINKS, TGT_WORDS, SRC_WORDS) for place in pair]
    return [
        {"index": 0, "src_ids": [5, 6, 7, 8, 3], "tgt_ids": [5, 6, 7, 8, 3], "links": links},
        {"index": 1, "src_ids": [5, 3], "tgt_ids": [5, 3], "links": []},
    ]


def test_the_guide_is_even_over_the_linked_pieces_and_empty_elsewhere():
    guide = collate(rows(), pad_id=0, bos_id=2).guide
    expected = torch.zeros(2, 5, 5)
    expected[0, 0, :2] = expected[0, 1, 2:4] = expected[0, 2, 2:4] = 0.5
    assert torch.equal(guide, expected)
    words = words_from_pieces(guide[0], TGT_WORDS, SRC_WORDS, num_tgt_words=3, num_src_words=3)
    np.testing.assert_allclose(words, [[1, 0, 0], [0, 0.5, 0.5], [0, 0, 0]])


def test_rows_without_links_give_a_batch_without_a_guide():
    bare = [{key: row[key] for key in ("index", "src_ids", "tgt_ids")} for row in rows()]
    assert collate(bare, pad_id=0, bos_id=2).guide is None


def test_the_loss_is_the_cross_entropy_of_known_rows():
    guide = collate(rows(), pad_id=0, bos_id=2).guide.double()
    weights = torch.randn(2, 5, 5, dtype=torch.float64).softmax(-1).requires_grad_()
    expected = 0.0
    for b in range(2):
        for t in range(5):
            for j in range(5):
                expected -= guide[b, t, j].item() * np.log(weights[b, t, j].item())
    loss = guided_alignment(weights, guide)
    assert loss.item() == pytest.approx(expected, abs=1e-10)
    (gradient,) = torch.autograd.grad(loss, weights)
    torch.testing.assert_close(gradient, -guide / weights, **EXACT)


def test_a_weight_of_zero_is_finite():
    guide = torch.tensor([[[1.0, 0.0]]])
    assert guided_alignment(torch.tensor([[[0.0, 1.0]]]), guide).isfinite()


CHINESE = {"src": ["a small house", "the house"], "tgt": ["一座小房子", "房子"]}
TEXT = {"src": ["a small house", "the house"], "tgt": ["một ngôi nhà nhỏ", "ngôi nhà"]}


def make_datamodule(columns: dict, guided: bool) -> TranslationDataModule:
    tokenizer = Tokenizer.train(
        columns["src"] * 20,
        columns["tgt"] * 20,
        model_type="bpe",
        joint=True,
        vocab_size=40,
        character_coverage=1.0,
    )
    data = Dataset.from_dict(columns)
    return TranslationDataModule(
        {"train": data, "val": data},
        tokenizer,
        max_length=50,
        max_ratio=5,
        max_tokens=200,
        seed=1,
        guided=guided,
    )


def test_training_batches_carry_the_corpus_alignments_between_words():
    columns = TEXT | {"alignment": ["0-0 2-1 2-2 1-3", "1-0 1-1"]}
    data = make_datamodule(columns, guided=True)
    batch = next(iter(data.train_dataloader()))
    for row, guide, src, tgt in zip(
        batch.indices.tolist(), batch.guide, batch.src, batch.tgt_out, strict=True
    ):
        _, src_words = data.tokenizer.align_source(TEXT["src"][row])
        _, tgt_words = data.tokenizer.align_target(TEXT["tgt"][row])
        assert src[len(src_words) :].eq(0).all()
        assert tgt[len(tgt_words) :].eq(0).all()
        words = words_from_pieces(
            guide[: len(tgt_words), : len(src_words)], tgt_words, src_words, num_tgt_words=5, num_src_words=3
        )
        links = {(int(i), int(j)) for j, i in np.argwhere(words > 0)}
        assert links == {tuple(map(int, link.split("-"))) for link in columns["alignment"][row].split()}
    assert next(iter(make_datamodule(columns, guided=False).train_dataloader())).guide is None


@pytest.mark.parametrize("columns", [TEXT, CHINESE])
def test_text_without_alignments_is_aligned_by_counting(columns):
    """Its links are those of `align_words`, between words or, in Chinese, characters."""
    data = make_datamodule(columns, guided=True)
    links = [*align_words(*(map(split_units, columns[side]) for side in ("src", "tgt")))]
    assert all(links), "the two pairs share a noun"
    for row in data.train:
        src, tgt = columns["src"][row["index"]], columns["tgt"][row["index"]]
        of_src, of_tgt = data.tokenizer.source_side(src), data.tokenizer.target_side(tgt)
        expected = {
            (t, s)
            for i, j in links[row["index"]]
            for t in of_tgt.pieces_of([j])
            for s in of_src.pieces_of([i])
        }
        assert {*zip(row["links"][::2], row["links"][1::2], strict=True)} == expected
    assert make_datamodule(TEXT, guided=False).train.column_names == ["index", "src_ids", "tgt_ids"]
