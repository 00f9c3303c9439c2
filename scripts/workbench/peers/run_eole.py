"""Runner of Eole, the successor of OpenNMT-py: its model, loss, optimizer, trainer's step and translator."""

from typing import Any

import eole
import runner
from eole.config.run import PredictConfig, TrainConfig
from eole.inputters.inputter import dict_to_vocabs
from eole.models.model import get_model_class
from eole.predict import GNMTGlobalScorer, Translator
from eole.trainer import build_trainer
from eole.utils.optimizers import Optimizer

TRAINING = {
    "optim": "adam",
    "learning_rate": runner.LR,
    "max_grad_norm": runner.CLIP,
    "dropout": [runner.DROPOUT],
    "attention_dropout": [runner.DROPOUT],
    "normalization": "tokens",
    "decay_method": "none",
    "param_init_method": "xavier_uniform",
}


def recurrent(attention: str, input_feeding: bool) -> dict[str, Any]:
    """The configuration of a recurrent model."""
    sizes = {"rnn_type": "GRU", "layers": 1, "hidden_size": runner.HIDDEN}
    return {
        "embeddings": {"word_vec_size": runner.HIDDEN, "position_encoding_type": None},
        "encoder": {"encoder_type": "brnn", **sizes},
        "decoder": {"decoder_type": "rnn", "global_attention": attention, **sizes},
        "input_feed": int(input_feeding),
    }


MODELS = {
    "gru_general": recurrent("general", False),
    "gru_feeding": recurrent("general", True),
    "gru_bahdanau": recurrent("mlp", True),
    "transformer": {
        "architecture": "transformer",
        "layers": runner.LAYERS,
        "hidden_size": runner.SIZE,
        "heads": runner.HEADS,
        "transformer_ff": runner.FEEDFORWARD,
        "add_qkvbias": True,
        "add_ffnbias": True,
        "embeddings": {"word_vec_size": runner.SIZE, "position_encoding_type": "SinusoidalInterleaved"},
        "share_embeddings": True,
        "share_decoder_embeddings": True,
    },
}


class Eole:
    def __init__(self, model: str, vocab_size: int) -> None:
        names = runner.names(vocab_size)
        vocabularies = dict_to_vocabs({"src": names, "tgt": names, "specials": {}})
        config = TrainConfig(
            data={}, src_vocab="none", share_vocab=True, model=MODELS[model], training=TRAINING
        )
        self.model = get_model_class(config.model).for_training(
            config.model, vocabularies, config.training, device_id=-1
        )
        optimizer = Optimizer.from_config(self.model, config)
        self.trainer = build_trainer(config, -1, self.model, vocabularies, optimizer)
        self.translators = {}
        for size in (1, 5):
            cfg = PredictConfig(
                model_path="none",
                src="none",
                beam_size=size,
                top_k=int(size == 1),  # the best piece: its greedy search
                min_length=runner.LENGTH,
                max_length=runner.LENGTH,
                max_length_ratio=0,
            )
            scorer = GNMTGlobalScorer.from_config(cfg)
            self.translators[size] = Translator(
                self.model, vocabularies, cfg, config.model, device_id=-1, global_scorer=scorer
            )

    def step(self, batch: runner.Batch) -> None:
        runner.set_dropout(self.model, True)
        statistics = [eole.utils.Statistics() for _ in range(2)]
        corpus = {"cid": ["text"] * len(batch.src), "cid_line_number": range(len(batch.src))}
        inputs: dict[str, Any] = {"src": batch.src, "srclen": batch.lengths, "tgt": batch.tgt, **corpus}
        inputs |= {"images": None, "prefix_len": None}
        self.trainer._train_step([inputs], batch.num_tokens, *statistics)

    def decode(self, batch: runner.Batch, beam_size: int) -> list[int]:
        runner.set_dropout(self.model, False)
        inputs = {"src": batch.src, "srclen": batch.lengths}  # a target would be scored
        found = self.translators[beam_size].predict_batch(inputs, False)
        return [len(best) for best, *_ in found["predictions"]]


if __name__ == "__main__":
    runner.serve(Eole)
