"""Runner of Hugging Face transformers: Marian's Transformer and `generate`; the optimizer is its Trainer's default."""

import runner
import torch
from transformers import MarianConfig, MarianMTModel


class Transformers:
    def __init__(self, model: str, vocab_size: int) -> None:
        sizes = {"layers": runner.LAYERS, "attention_heads": runner.HEADS, "ffn_dim": runner.FEEDFORWARD}
        self.model = MarianMTModel(
            MarianConfig(
                **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
                vocab_size=vocab_size,
                d_model=runner.SIZE,
                activation_function="relu",
                dropout=runner.DROPOUT,
                attention_dropout=runner.DROPOUT,
                activation_dropout=runner.DROPOUT,
                pad_token_id=runner.PAD,
                bos_token_id=runner.BOS,
                eos_token_id=runner.EOS,
                decoder_start_token_id=runner.BOS,
                forced_eos_token_id=None,
                max_position_embeddings=512,
                scale_embedding=True,
                share_encoder_decoder_embeddings=True,
                tie_word_embeddings=True,
            )
        )
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=runner.LR, weight_decay=0.0, fused=True
        )

    def step(self, batch: runner.Batch) -> None:
        labels = batch.tgt_out.masked_fill(batch.tgt_out == runner.PAD, -100)
        self.model.train()(
            **self._source(batch), decoder_input_ids=batch.tgt_in, labels=labels
        ).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), runner.CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def decode(self, batch: runner.Batch, beam_size: int) -> list[int]:
        found = self.model.eval().generate(
            **self._source(batch),
            num_beams=beam_size,
            do_sample=False,
            min_new_tokens=runner.LENGTH,
            max_new_tokens=runner.LENGTH,
        )
        return [found.size(1) - 1] * len(found)  # BOS stands before them

    def _source(self, batch: runner.Batch) -> dict[str, torch.Tensor]:
        return {"input_ids": batch.src, "attention_mask": (batch.src != runner.PAD).long()}


if __name__ == "__main__":
    runner.serve(Transformers)
