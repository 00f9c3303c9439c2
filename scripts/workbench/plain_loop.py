"""A plain PyTorch translator in one file: the baseline of speedrun.py.

It is a GRU encoder-decoder with general attention (Luong et al. 2015), made of torch's layers and trained by Adam with
a cosine schedule on batches of tokens. It imports nothing of nmt: speedrun.py gives it the text.

python scripts/workbench/plain_loop.py TEXTS.json SEED
"""

import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import NamedTuple

import sentencepiece
import torch
from sacrebleu import corpus_bleu
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

PAD, UNK, BOS, EOS = range(4)


class Recipe(NamedTuple):
    """Sizes and rates of experiment=multi30k_fast. max_tokens: pieces per batch and side."""

    vocab_size: int = 4000
    size: int = 256
    dropout: float = 0.2
    max_tokens: int = 1024
    lr: float = 0.003
    warmup_steps: int = 200
    num_epochs: int = 4
    label_smoothing: float = 0.1


class PlainTranslator(nn.Module):
    def __init__(self, vocab_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, size)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        self.encoder = nn.GRU(size, size // 2, bidirectional=True, batch_first=True)
        self.bridge = nn.Linear(size, size)
        self.decoder = nn.GRU(size, size, batch_first=True)
        self.general = nn.Linear(size, size, bias=False)
        self.readout = nn.Linear(2 * size, size)
        self.output = nn.Linear(size, vocab_size)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(dropout)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For src [B, S]: states [B, S, H], padding mask [B, 1, S] (True: padding), first decoder state [1, B, H]."""
        lengths = (src != PAD).sum(dim=1).cpu()
        packed = pack_padded_sequence(
            self.dropout(self.embedding(src)), lengths, batch_first=True, enforce_sorted=False
        )
        states, last = self.encoder(packed)
        states, _ = pad_packed_sequence(states, batch_first=True)
        return states, (src == PAD)[:, None], torch.tanh(self.bridge(torch.cat(list(last), dim=-1)))[None]

    def decode(self, tgt: Tensor, states: Tensor, padding: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, T, V] of the next piece after every position of tgt [B, T], and the last state."""
        outputs, hidden = self.decoder(self.dropout(self.embedding(tgt)), hidden)
        scores = outputs @ self.general(states).transpose(1, 2)
        context = scores.masked_fill(padding, -torch.inf).softmax(dim=-1) @ states
        joined = torch.tanh(self.readout(torch.cat((context, outputs), dim=-1)))
        return self.output(self.dropout(joined)), hidden

    @torch.inference_mode()
    def greedy(self, src: Tensor) -> list[list[int]]:
        states, padding, hidden = self.encode(src)
        piece, found = torch.full((len(src), 1), BOS), []
        for _ in range(2 * src.size(1) + 10):
            scores, hidden = self.decode(piece, states, padding, hidden)
            piece = scores.argmax(dim=-1)
            found.append(piece)
            if all((torch.cat(found, dim=1) == EOS).any(dim=1)):
                break
        rows = torch.cat(found, dim=1).tolist()
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]


def batches(pairs: Sequence[tuple[list[int], list[int]]], max_tokens: int) -> Iterator[list[int]]:
    """Batches of indices of pairs with similar lengths, at most max_tokens padded pieces per side, in random order."""
    order = sorted(range(len(pairs)), key=lambda n: (len(pairs[n][1]), len(pairs[n][0]), random.random()))
    dealt: list[list[int]] = [[]]
    longest = 0
    for number in order:
        longest = max(longest, *map(len, pairs[number]))
        if longest * (len(dealt[-1]) + 1) > max_tokens:
            dealt.append([])
            longest = max(map(len, pairs[number]))
        dealt[-1].append(number)
    random.shuffle(dealt)
    yield from dealt


def pad(rows: Sequence[list[int]]) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def train_plain(
    texts: dict[str, list[tuple[str, str]]], recipe: Recipe, seed: int
) -> Iterator[tuple[int, float]]:
    """Yield the number of steps and the BLEU of the greedy translations of `val` after each epoch."""
    random.seed(seed)
    torch.manual_seed(seed)
    model_bytes = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for pair in texts["train"] for line in pair),
        model_writer=model_bytes,
        vocab_size=recipe.vocab_size,
        hard_vocab_limit=False,
        pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS,
        minloglevel=2,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model_bytes.getvalue())
    pairs = [([*pieces.encode(src), EOS], [*pieces.encode(tgt), EOS]) for src, tgt in texts["train"]]
    model = PlainTranslator(len(pieces), recipe.size, recipe.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr, betas=(0.9, 0.98), fused=True)
    total = recipe.num_epochs * len(list(batches(pairs, recipe.max_tokens)))
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / recipe.warmup_steps, 0.5 + 0.5 * math.cos(math.pi * step / total)),
    )
    step = 0
    for _ in range(recipe.num_epochs):
        model.train()
        for numbers in batches(pairs, recipe.max_tokens):
            src, tgt = pad([pairs[n][0] for n in numbers]), pad([[BOS, *pairs[n][1]] for n in numbers])
            scores, _ = model.decode(tgt[:, :-1], *model.encode(src))
            loss = cross_entropy(
                scores.flatten(0, 1),
                tgt[:, 1:].flatten(),
                ignore_index=PAD,
                label_smoothing=recipe.label_smoothing,
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
        yield step, validate(model.eval(), pieces, texts["val"])


def validate(
    model: PlainTranslator, pieces: sentencepiece.SentencePieceProcessor, pairs: list[tuple[str, str]]
) -> float:
    sources = [[*pieces.encode(src), EOS] for src, _ in pairs]
    order = sorted(range(len(pairs)), key=lambda n: len(sources[n]))
    found = [""] * len(pairs)
    for some in (order[start : start + 64] for start in range(0, len(order), 64)):
        for number, row in zip(some, model.greedy(pad([sources[n] for n in some])), strict=True):
            found[number] = pieces.decode(row)
    return corpus_bleu(found, [[tgt for _, tgt in pairs]]).score


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        texts = json.load(file)
    for step, bleu in train_plain(texts, Recipe(), seed=int(sys.argv[2])):
        print(json.dumps({"step": step, "bleu": bleu}), flush=True)
