"""Greedy translation of standard input with encoder.onnx and step.onnx, line by line."""

import json
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime
import sentencepiece

HERE = Path(__file__).parent
CONFIG = json.loads((HERE / "config.json").read_text("utf-8"))
PAD, BOS, EOS = CONFIG["pad_id"], CONFIG["bos_id"], CONFIG["eos_id"]
BATCH = 32  # lines


class OnnxTranslator:
    def __init__(self):
        self.encoder, self.step = (
            onnxruntime.InferenceSession(HERE / f"{name}.onnx") for name in ("encoder", "step")
        )
        names = ("joint.model",) * 2 if CONFIG["joint"] else ("src.model", "tgt.model")
        self.source, self.target = (
            sentencepiece.SentencePieceProcessor(model_file=str(HERE / name)) for name in names
        )

    def encode(self, line):
        """Piece ids of a line with end of sentence; a line too long for the model is truncated."""
        pieces = self.source.encode(line.lower() if CONFIG["lowercase"] else line)
        return [*pieces[: CONFIG["max_source_pieces"] - 1], EOS]

    def translate(self, lines):
        """Translations of several lines; an empty line has an empty translation."""
        rows = [self.encode(line) for line in lines]
        src = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
        for number, row in enumerate(rows):
            src[number, : len(row)] = row
        ratio, extra = (Fraction(str(CONFIG[f"max_length_{each}"])) for each in ("ratio", "extra"))
        limits = np.array([0 if len(row) == 1 else int(ratio * len(row) + extra) for row in rows])
        # The beginning of sentence takes one position
        limits = np.minimum(limits, (CONFIG["max_target_pieces"] or np.inf) - 1)
        names = [each.name for each in self.encoder.get_outputs()]
        known = dict(zip(names, self.encoder.run(None, {"src": src}), strict=True))
        known["piece"] = np.full(len(rows), BOS, dtype=np.int64)
        wanted = [each.name for each in self.step.get_inputs()]
        names = [each.name.removeprefix("new_") for each in self.step.get_outputs()]
        found: list[list[int]] = [[] for _ in rows]
        done = limits == 0
        while not done.all():
            step = self.step.run(None, {name: known[name] for name in wanted})
            known |= zip(names, step, strict=True)
            logits = known["logits"]
            logits[:, [PAD, BOS]] = -np.inf
            known["piece"] = logits.argmax(axis=1)
            for number, piece in enumerate(known["piece"].tolist()):
                if not done[number] and piece != EOS:
                    found[number].append(piece)
                done[number] |= piece == EOS or len(found[number]) >= limits[number]
        return [self.target.decode(pieces) for pieces in found]


if __name__ == "__main__":
    translator = OnnxTranslator()
    with (
        open(0, encoding="utf-8", newline="\n") as stdin,
        open(1, "w", encoding="utf-8", newline="\n") as stdout,
    ):
        lines = (line.removesuffix("\n").removesuffix("\r") for line in stdin)
        while batch := list(islice(lines, BATCH)):
            print("\n".join(translator.translate(batch)), file=stdout, flush=True)
