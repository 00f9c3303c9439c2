"""Runner of JoeyNMT: its model, loss, optimizer and search. `step` does the work of its trainer's `_train_step`."""

from types import SimpleNamespace
from typing import Any

import runner
import torch
from joeynmt.batch import Batch
from joeynmt.builders import build_gradient_clipper, build_optimizer
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary


def recurrent(attention: str) -> dict[str, Any]:
    """The configuration of a recurrent model."""
    embeddings = {"embedding_dim": runner.HIDDEN, "scale": False, "dropout": runner.DROPOUT}
    part = {"type": "recurrent", "rnn_type": "gru", "dropout": runner.DROPOUT, "num_layers": 1}
    encoder = {"hidden_size": runner.HIDDEN // 2, "bidirectional": True, "embeddings": dict(embeddings)}
    decoder = {"hidden_size": runner.HIDDEN, "hidden_dropout": runner.DROPOUT, "embeddings": dict(embeddings)}
    wiring = {"input_feeding": True, "init_hidden": "bridge", "attention": attention}
    return {"encoder": part | encoder, "decoder": part | decoder | wiring}


def transformer() -> dict[str, Any]:
    """The configuration of the Transformer."""
    part = {
        "type": "transformer",
        "num_layers": runner.LAYERS,
        "num_heads": runner.HEADS,
        "hidden_size": runner.SIZE,
        "ff_size": runner.FEEDFORWARD,
        "dropout": runner.DROPOUT,
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": runner.SIZE, "scale": True, "dropout": runner.DROPOUT},
    }
    tied = {"embed_initializer": "xavier_uniform", "tied_embeddings": True, "tied_softmax": True}
    return {"encoder": dict(part), "decoder": dict(part), **tied}


class JoeyNMT:
    def __init__(self, model: str, vocab_size: int) -> None:
        special = SimpleNamespace(
            **{f"{name}_id": getattr(runner, name.upper()) for name in ("unk", "pad", "bos", "eos")},
            **{"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"},
            sep_token=None,
            lang_tags=[],
        )
        vocabulary = Vocabulary(runner.names(vocab_size, "<pad>"), special)
        attention = {"gru_feeding": "luong", "gru_bahdanau": "bahdanau"}.get(model)
        cfg = transformer() if attention is None else recurrent(attention)
        initial = {"initializer": "xavier_uniform", "bias_initializer": "zeros"}
        self.model = build_model(initial | cfg, vocabulary, vocabulary)
        self.model.loss_function = ("crossentropy", 0.0)
        adam = {"optimizer": "adam", "learning_rate": runner.LR}
        self.optimizer = build_optimizer(adam, self.model.parameters())
        self.clip = build_gradient_clipper({"clip_grad_val": None, "clip_grad_norm": runner.CLIP})

    def step(self, batch: runner.Batch) -> None:
        ordered = self._of(batch)
        loss, _, _, num_correct = self.model.train()(return_type="loss", **vars(ordered))
        ordered.normalize(loss, normalization="tokens").backward()
        num_correct.item()
        self.clip(parameters=self.model.parameters())
        self.optimizer.step()
        self.model.zero_grad()

    def decode(self, batch: runner.Batch, beam_size: int) -> list[int]:
        found, _, _ = search(
            model=self.model.eval(),
            batch=self._of(batch),
            **{"beam_size": beam_size, "beam_alpha": 1.0, "n_best": 1, "generate_unk": True},
            **{"min_output_length": runner.LENGTH, "max_output_length": runner.LENGTH},
        )
        return [found.shape[1]] * len(found)

    def _of(self, batch: runner.Batch) -> Batch:
        indices, device = torch.arange(len(batch.src)), torch.device("cpu")
        texts = (batch.src, batch.lengths, None, batch.tgt, None)
        ordered = Batch(*texts, indices, device, runner.PAD, runner.EOS)
        ordered.sort_by_src_length()
        return ordered


if __name__ == "__main__":
    runner.serve(JoeyNMT)
