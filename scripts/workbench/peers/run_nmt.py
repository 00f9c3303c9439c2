"""Runner of this project."""

from types import SimpleNamespace
from typing import Any

import runner
import torch

from nmt.benchmark import build_step
from nmt.commands.composing import compose
from nmt.data.batching import Batch
from nmt.decoding import DecodingSettings, search
from nmt.run.model import quantise_linear_maps

COMMON = (
    f"optimizer.lr={runner.LR} model.dropout={runner.DROPOUT} gradient_clip_val={runner.CLIP} label_smoothing=0.0 "
    "data.tokenizer.joint=true "
)
GRU = (
    f"model=gru model.size={runner.HIDDEN} encoder.size={runner.HIDDEN // 2} encoder.output_size=null "
    "model.tie_output=false model.tie_source=false "
)
MODELS = {
    "gru_general": GRU + "attention=luong_general",
    "gru_feeding": GRU + "attention=luong_general wiring.input_feeding=true",
    "gru_bahdanau": GRU + "attention=bahdanau",
    "transformer": "model=transformer",  # whose sizes by default are those of runner.py
    "transformer_int8": "model=transformer",
}


class Nmt:
    def __init__(self, model: str, vocab_size: int) -> None:
        tokenizer: Any = SimpleNamespace(
            **{
                "src_vocab_size": vocab_size,
                "tgt_vocab_size": vocab_size,
                "joint": True,
                "separator_id": None,
            },
            **{"pad_id": runner.PAD, "bos_id": runner.BOS, "eos_id": runner.EOS},
        )
        cfg = compose("benchmark", (COMMON + MODELS[model]).split())
        self.training = build_step(cfg, tokenizer, torch.device("cpu"))
        self.model = self.training.module.translator
        if model.endswith("int8"):
            quantise_linear_maps(self.model.eval())

    def step(self, batch: runner.Batch) -> None:
        self.training.module.train()
        indices = torch.arange(len(batch.src))
        self.training(Batch(indices, batch.src, batch.tgt_in, batch.tgt_out, None))

    def decode(self, batch: runner.Batch, beam_size: int) -> list[int]:
        length = runner.LENGTH - 1  # EOS is not counted here, and follows
        settings = DecodingSettings(
            beam_size=beam_size, min_length=length, max_length_ratio=0.0, max_length_extra=length
        )
        return [len(best.ids) + 1 for [best] in search(self.model.eval(), batch.src, settings)]


if __name__ == "__main__":
    runner.serve(Nmt)
