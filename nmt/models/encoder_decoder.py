"""The translator that joins any encoder to any decoder.

h = encoder(x)      r_1..r_T = decoder(y, h)      p(y_t | y_<t, x) = softmax(W_y r_t)

With `lexical`, the output layer reads r_t + v_t, v_t the votes of the attended source words (`LexicalVotes`).
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from nmt import kernels
from nmt.config.types import Count, Share
from nmt.decoders.base import Decoder, Read
from nmt.encoders.base import Encoder
from nmt.layers.embedding import Embedding
from nmt.layers.lexical import LexicalVotes
from nmt.models.base import Attentions, Step, Translator


class EncoderDecoder(Translator):
    """Embeddings of both languages, an encoder, a decoder, and the output layer W_y.

    `encoder` and `decoder` build their parts from given embeddings and sizes. `size` is the width of the embeddings.
    `dropout` is passed to both parts; `word_dropout` drops whole words of source and target. `tie_output`: W_y is the
    target embedding. `tie_source`: the source embedding is the target embedding, which needs a joint vocabulary.
    `lexical`: attended source pieces vote for target pieces.

    Raises ValueError if sizes or ties do not fit, and for votes without attention.
    """

    def __init__(
        self,
        *,
        src_vocab_size: int,
        tgt_vocab_size: int,
        joint_vocabulary: bool,
        separator_id: int | None = None,
        pad_id: int,
        bos_id: int,
        eos_id: int,
        size: Count,
        dropout: Share,
        word_dropout: Share,
        tie_output: bool,
        tie_source: bool,
        lexical: bool = False,
        encoder: Callable[..., Encoder],
        decoder: Callable[..., Decoder],
    ) -> None:
        super().__init__()
        if tie_source and not joint_vocabulary:
            raise ValueError(
                "model.tie_source=true needs one joint vocabulary: "
                "set model.tie_source=false or data.tokenizer.joint=true"
            )
        self.pad_id, self.bos_id, self.eos_id = pad_id, bos_id, eos_id
        of_pieces: Any = {"pad_id": pad_id, "word_dropout": word_dropout, "separator_id": separator_id}
        tgt_embedding = Embedding(tgt_vocab_size, size, **of_pieces)
        src_embedding = tgt_embedding if tie_source else Embedding(src_vocab_size, size, **of_pieces)
        self.encoder = encoder(embedding=src_embedding, dropout=dropout)
        self.decoder = decoder(
            embedding=tgt_embedding,
            memory_size=self.encoder.output_size,
            summary_size=self.encoder.summary_size,
            dropout=dropout,
        )
        reads_states = (
            self.decoder.needs_documents if self.encoder.reads_documents else self.decoder.has_attention
        )
        if not reads_states:
            self.encoder.keep_summary_only()
        if self.decoder.needs_documents and not self.encoder.reads_documents:
            raise ValueError("this attention weighs the sentences of a document: set encoder=hierarchical")
        reads_sentences = self.decoder.needs_documents or (
            self.decoder.reads_summary and self.encoder.summary_size is not None
        )
        if self.encoder.reads_documents and not reads_sentences:
            raise ValueError("nothing reads the sentences of encoder=hierarchical: set attention=sentences")
        if lexical and not self.decoder.has_attention:
            raise ValueError(
                "model.lexical=true lets attended words vote, and this model has no attention: give model.lexical=false"
            )
        self.lexical = LexicalVotes(size, self.decoder.features_size, dropout) if lexical else None
        self.output = kernels.Linear(self.decoder.features_size, tgt_vocab_size)  # W_y
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        if tie_output:
            self.output.weight = tgt_embedding.weight

    @property
    def name(self) -> str:
        votes = "" if self.lexical is None else " + LexicalVotes"
        return f"{type(self.encoder).__name__} + {type(self.decoder).__name__}{votes}"

    @property
    def has_attention(self) -> bool:
        return self.decoder.has_attention

    @property
    def reads_documents(self) -> bool:
        return self.encoder.reads_documents

    @property
    def alignment_layer(self) -> int | None:  # type: ignore[override]
        return self.decoder.alignment_layer

    @property
    def max_length(self) -> int | None:
        limits = (self.encoder.max_length, self.decoder.max_length)
        return min((each for each in limits if each is not None), default=None)

    def encode(self, src: Tensor, src_mask: Tensor) -> Any:
        memory = self.decoder.prepare(self.encoder(src, src_mask))
        return memory if self.lexical is None else (memory, self.encoder.embedding(src))  # type: ignore[operator]

    def read(self, memory: Any, tgt_in: Tensor, *, need_weights: bool = False) -> Read:
        if self.lexical is None:
            return self.decoder.unroll(memory, tgt_in, need_weights=need_weights)
        of_decoder, words = memory
        features, weights = self.decoder.unroll(of_decoder, tgt_in, need_weights=True)
        assert weights is not None
        return Read(features + self.lexical(weights, words), weights if need_weights else None)

    def attentions(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Attentions:
        encoded, encoder_self = self.encoder.attentions(src, src_mask)
        cross, decoder_self = self.decoder.attentions(self.decoder.prepare(encoded), tgt_in)
        return Attentions(cross, encoder_self, decoder_self)

    def init_state(self, memory: Any) -> Any:
        return self.decoder.init_state(memory if self.lexical is None else memory[0])

    def step(self, tgt_prev: Tensor, state: Any, memory: Any, *, need_weights: bool = False) -> Step:
        if self.lexical is None:
            features, state, weights = self.decoder.step(tgt_prev, state, memory, need_weights=need_weights)
            return Step(self.output(features), state, weights)
        of_decoder, words = memory
        features, state, weights = self.decoder.step(tgt_prev, state, of_decoder, need_weights=True)
        assert weights is not None
        beside = weights.unflatten(0, (words.size(0), -1))  # [B, K, S]
        features = features + self.lexical(beside, words).flatten(0, 1)
        return Step(self.output(features), state, weights if need_weights else None)
