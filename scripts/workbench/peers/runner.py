"""The part that the runners of all toolkits share. It imports torch alone, since it runs in all their environments.

A runner is a class. `__init__(model, vocab_size)` builds `self.model`, `step(batch)` takes an optimizer step, and
`decode(batch, beam_size)` translates to `LENGTH` pieces and returns the number of pieces of each translation.
"""

import io
import json
import logging
import sys
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor

UNK, PAD, BOS, EOS = 0, 1, 2, 3  # ids of the special pieces: JoeyNMT has no others
SENTENCES = 64  # of each batch that are translated
LENGTH = 16  # pieces of every translation, so that untrained weights cost the same everywhere
HIDDEN = (
    512  # of the recurrent models: embeddings, decoder, output layer, and the encoder's directions together
)
LAYERS, SIZE, HEADS, FEEDFORWARD = 3, 256, 4, 1024  # of the Transformer, whose embeddings are tied
DROPOUT, LR, CLIP = 0.1, 0.0005, 1.0


class Batch(NamedTuple):
    """B sentence pairs, padded.

    src: source pieces and EOS [B, S].
    lengths: source lengths with EOS [B].
    tgt: BOS, target pieces, EOS [B, T + 1].
    tgt_in, tgt_out: the same without EOS and without BOS [B, T].
    num_tokens: target pieces and EOS.
    """

    src: Tensor
    lengths: Tensor
    tgt: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    num_tokens: int

    @classmethod
    def of(cls, src: list[list[int]], tgt: list[list[int]]) -> "Batch":
        """The batch of rows of ids, each of which ends with EOS."""

        def pad(rows: list[list[int]]) -> Tensor:
            longest = max(map(len, rows))
            return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])

        whole = [[BOS, *row] for row in tgt]
        lengths = torch.tensor([len(row) for row in src])
        tgt_in = pad([row[:-1] for row in whole])
        return cls(pad(src), lengths, pad(whole), tgt_in, pad(tgt), sum(map(len, tgt)))


def names(vocab_size: int, pad: str = "<blank>") -> list[str]:
    """A name for each piece, as the toolkits spell the special ones; they spell padding differently."""
    return ["<unk>", pad, "<s>", "</s>", *(f"piece{number}" for number in range(4, vocab_size))]


def set_dropout(model: Any, training: bool) -> None:
    """Switch training mode, also for attention that keeps its dropout probability apart from it."""
    model.train(training)
    for module in model.modules():
        if hasattr(module, "dropout_p"):
            module.dropout_p = DROPOUT if training else 0.0


def serve(toolkit: Any) -> None:
    """Read the job in the file argv[1], then do the work that each line of standard input asks for.

    A line is `[model, work, numbers]`: "train", "greedy" or "beam", and the numbers of the batches. The answer is
    `[num_parameters, amount, seconds, processor_seconds]`; the amount is target tokens or sentences.
    """
    answers, sys.stdout = sys.stdout, io.StringIO()  # toolkits print
    logging.disable()
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    torch.set_num_threads(job["num_threads"])
    parts = (None, SENTENCES)
    batches = [[Batch.of(src[:most], tgt[:most]) for most in parts] for src, tgt in job["batches"]]
    built: Any = None
    runner: Any = None
    for line in sys.stdin:
        model, work, numbers = json.loads(line)
        if model != built:
            torch.manual_seed(1)
            built, runner = model, toolkit(model, job["vocab_size"])
        start, start_cpu, amount = time.perf_counter(), time.process_time(), 0
        for number in numbers:
            amount += do(runner, work, *batches[number])
        seconds = time.perf_counter() - start, time.process_time() - start_cpu
        size = sum(each.numel() for each in runner.model.parameters() if each.requires_grad)
        print(json.dumps([size, amount, *seconds]), file=answers, flush=True)


def do(runner: Any, work: str, whole: Batch, part: Batch) -> int:
    """Train on the whole batch or translate its part. Returns the number of target tokens or of sentences."""
    if work == "train":
        runner.step(whole)
        return whole.num_tokens
    with torch.inference_mode():
        lengths = runner.decode(part, 1 if work == "greedy" else 5)
    assert list(lengths) == [LENGTH] * len(part.src), lengths
    return len(lengths)
