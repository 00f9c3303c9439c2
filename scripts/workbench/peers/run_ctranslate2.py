"""Runner of CTranslate2, which only translates: the Transformer of this project, exported."""

from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import ctranslate2
import runner
import torch
from run_nmt import Nmt

from nmt.export.ctranslate2 import write


class CTranslate2:
    def __init__(self, model: str, vocab_size: int) -> None:
        self.model = Nmt("transformer", vocab_size).model
        self.names = names = runner.names(vocab_size)
        tokenizer = SimpleNamespace(
            **{f"{name}_id": getattr(runner, name.upper()) for name in ("unk", "pad", "bos", "eos")},
            **{f"{side}_vocab_size": vocab_size for side in ("src", "tgt")},
            **{f"{side}_pieces": lambda ids: [names[each] for each in ids] for side in ("source", "target")},
            joint=True,
            lowercase=False,
            models=[],
            save=lambda directory: None,
        )
        run: Any = SimpleNamespace(translator=self.model, directory="", tokenizer=tokenizer)
        with TemporaryDirectory() as directory:
            write(run, Path(directory))
            self.translator = ctranslate2.Translator(
                directory,
                device="cpu",
                compute_type="int8" if model.endswith("int8") else "float32",
                inter_threads=1,
                intra_threads=torch.get_num_threads(),
            )

    def decode(self, batch: runner.Batch, beam_size: int) -> list[int]:
        lengths = batch.lengths.tolist()
        sources = [
            [self.names[each] for each in row[: length - 1]]  # it adds EOS itself
            for row, length in zip(batch.src.tolist(), lengths, strict=True)
        ]
        found = self.translator.translate_batch(
            sources,
            beam_size=beam_size,
            min_decoding_length=runner.LENGTH,
            max_decoding_length=runner.LENGTH,
        )
        return [len(each.hypotheses[0]) for each in found]


if __name__ == "__main__":
    runner.serve(CTranslate2)
