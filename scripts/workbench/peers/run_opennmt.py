"""Runner of OpenNMT-py: its model, loss, optimizer, gradient accumulation and translator."""

from typing import Any

import onmt
import runner
from onmt import opts
from onmt.inputters.inputter import dict_to_vocabs
from onmt.model_builder import build_model
from onmt.trainer import Trainer
from onmt.translate import GNMTGlobalScorer
from onmt.translate.translator import Translator
from onmt.utils.loss import LossCompute
from onmt.utils.optimizers import Optimizer
from onmt.utils.parse import ArgumentParser

COMMON = (
    "-data {} -src_vocab none -tgt_vocab none -share_vocab -save_model none -optim adam -normalization tokens "
    f"-learning_rate {runner.LR} -max_grad_norm {runner.CLIP} -dropout {runner.DROPOUT} "
    f"-attention_dropout {runner.DROPOUT} "
)
GRU = (
    "-encoder_type brnn -decoder_type rnn -rnn_type GRU -layers 1 "
    f"-hidden_size {runner.HIDDEN} -word_vec_size {runner.HIDDEN} "
)
MODELS = {
    "gru_general": GRU + "-global_attention general -input_feed 0",
    "gru_feeding": GRU + "-global_attention general -input_feed 1",
    "gru_bahdanau": GRU + "-global_attention mlp -input_feed 1",
    "transformer": "-encoder_type transformer -decoder_type transformer -position_encoding -share_embeddings "
    f"-share_decoder_embeddings -param_init 0 -param_init_glorot -layers {runner.LAYERS} "
    f"-hidden_size {runner.SIZE} -word_vec_size {runner.SIZE} -heads {runner.HEADS} "
    f"-transformer_ff {runner.FEEDFORWARD}",
}


class OpenNMT:
    def __init__(self, model: str, vocab_size: int) -> None:
        parser = ArgumentParser()
        opts.train_opts(parser)
        options = parser.parse_args((COMMON + MODELS[model]).split())
        options.data = {}
        ArgumentParser.update_model_opts(options)
        ArgumentParser.validate_model_opts(options)
        names = runner.names(vocab_size)
        vocabularies = dict_to_vocabs({"data_task": "seq2seq", "src": names, "tgt": names})
        self.model = build_model(options, options, vocabularies, None, -1)
        loss = LossCompute.from_opts(options, self.model, vocabularies["tgt"])
        self.trainer = Trainer(
            *(self.model, loss, loss, None, {}, Optimizer.from_opt(self.model, options)),
            norm_method="tokens",
            n_gpu=0,
            gpu_rank=-1,
            dropout=[runner.DROPOUT],
            attention_dropout=[runner.DROPOUT],
        )
        limits = {"min_length": runner.LENGTH, "max_length": runner.LENGTH, "max_length_ratio": 0}
        unused: Any = {"n_best": 1, "stepwise_penalty": False, "dump_beam": "", "report_score": False}
        scorer = GNMTGlobalScorer(0.0, 0.0, "none", "none")
        self.translators = {
            size: Translator(
                *(self.model, vocabularies),
                beam_size=size,
                random_sampling_topk=int(size == 1),  # the best piece: its greedy search
                global_scorer=scorer,
                **limits,
                **unused,
            )
            for size in (1, 5)
        }

    def step(self, batch: runner.Batch) -> None:
        runner.set_dropout(self.model, True)
        statistics = [onmt.utils.Statistics() for _ in range(2)]
        inputs = {"src": batch.src[..., None], "srclen": batch.lengths, "tgt": batch.tgt[..., None]}
        self.trainer._gradient_accumulation([inputs], batch.num_tokens, *statistics)

    def decode(self, batch: runner.Batch, beam_size: int) -> list[int]:
        runner.set_dropout(self.model, False)
        inputs = {"src": batch.src[..., None], "srclen": batch.lengths}  # a target would be scored
        found = self.translators[beam_size].translate_batch(inputs, False)
        return [len(best) for best, *_ in found["predictions"]]


if __name__ == "__main__":
    runner.serve(OpenNMT)
