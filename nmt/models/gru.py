"""The recurrent translator: a bidirectional encoder, and a decoder in one of the wirings of `wirings.py`.

    h_1..h_S = encoder(E x)      r_1..r_T = decoder(E y, h)      p(y_t | y_<t, x) = softmax(W_y r_t)

The cells are GRUs, or LSTMs where the configuration says so.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from nmt import kernels
from nmt.attention import Attention
from nmt.attention.masks import reverse_within_length
from nmt.decoders.recurrent import Decoder, DecoderSettings, DecoderState, Readout
from nmt.layers.cells import LayerNormGRULayer, State
from nmt.layers.dropout import Dropout, VariationalDropout, WordDropout
from nmt.layers.initialisation import start_map
from nmt.models.base import Attentions, Memory, Read, Step, Translator


class RecurrentEncoder(nn.Module):
    """A stack of bidirectional layers. Padding is never read: it stands after what a direction reads.

    The backward direction reads each sentence reversed within its own length, so neither direction needs
    packed sequences. With `output_size` the states are projected to that width once a sentence. With
    `residual` each layer but the first adds what it read (Wu et al. 2016, 3.1).
    """

    def __init__(
        self,
        *,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        variational: bool,
        residual: bool,
        output_size: int | None,
        layer_norm: bool,
        cell: Callable[..., Any],
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"model.encoder.num_layers must be at least 1, got {num_layers}")
        if output_size == 0:
            raise ValueError("model.encoder.output_size=0 leaves nothing: give null for no projection")
        sizes = [input_size] + [2 * hidden_size] * (num_layers - 1)
        self.forwards = nn.ModuleList(cell(input_size=size, hidden_size=hidden_size) for size in sizes)
        self.backwards = nn.ModuleList(cell(input_size=size, hidden_size=hidden_size) for size in sizes)
        self.norms = nn.ModuleList(
            nn.LayerNorm(2 * hidden_size) if layer_norm else nn.Identity() for _ in sizes
        )
        self.dropout = VariationalDropout(dropout) if variational else Dropout(dropout)
        self.residual = residual
        self.projection = nn.Identity() if output_size is None else nn.Linear(2 * hidden_size, output_size)
        self.output_size = 2 * hidden_size if output_size is None else output_size
        self.hidden_size, self.num_layers = hidden_size, num_layers
        self.summary_size = 2 * hidden_size

    def forward(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode embedded [B, S, input_size] under mask [B, S].

        Returns states [B, S, output_size] and the summary [B, 2 * hidden_size]: the top layer's last state of
        either direction, each of which has read the whole sentence; normalised where the states are.
        """
        lengths = mask.sum(dim=1)  # [B]
        last = (lengths - 1).view(-1, 1, 1)  # [B, 1, 1]
        states = embedded
        layers: Any = zip(self.forwards, self.backwards, self.norms, strict=True)
        for number, (forwards, backwards, norm) in enumerate(layers):
            below = states
            zeros = self._zeros(below, forwards.num_states)
            rightward, _ = forwards.run(below, zeros)  # [B, S, H]
            leftward_reversed, _ = backwards.run(reverse_within_length(below, lengths), zeros)  # [B, S, H]
            ends = last.expand(-1, 1, rightward.size(2))  # [B, 1, H]
            finals = [half.gather(1, ends).squeeze(1) for half in (rightward, leftward_reversed)]
            leftward = reverse_within_length(leftward_reversed, lengths)
            states = self.dropout(norm(torch.cat((rightward, leftward), dim=-1)))  # [B, S, 2H]
            if self.residual and number > 0:
                states = states + below
        states = self.projection(states) * mask.unsqueeze(-1)
        return states, norm(torch.cat(finals, dim=-1))

    def _zeros(self, inputs: Tensor, num_states: int) -> State:
        return (inputs.new_zeros(inputs.size(0), self.hidden_size),) * num_states


def _start(module: nn.Module) -> None:
    """Start a map, or the maps of a layer that knows which gates they are."""
    if isinstance(module, nn.Linear):
        start_map(module)
    elif isinstance(module, LayerNormGRULayer):
        module.start()


class GRUTranslator(Translator):
    """Encoder, decoder, embeddings and the output layer.

    s_0 = tanh(W_s [last state of either direction]) for each decoder layer (Bahdanau et al. 2015, A.2.2,
    which takes the backward direction alone); an LSTM's cell starts from a projection of its own, without
    tanh. Embeddings start at N(0, 1/E), so that a tied output layer starts with scores of unit variance, other maps
    as in Glorot & Bengio 2010, and the recurrences as `cells.start_gates` says.
    `readout_size`: the width of r_t; None is the embeddings'.
    `tie_output`: W_y is the target embedding; `tie_source`: the source embedding is the target's, which needs
    one joint vocabulary. `dropout` is on embeddings, encoder states, between layers and on readouts; with
    `variational` the units dropped are the same at every position (but between layers). `word_dropout` drops
    whole words of either input, `attention_dropout` weights out of the contexts. `layer_norm` normalises what each
    encoder layer gives, the summary and the readouts; `cells.LayerNormGRULayer` normalises inside the recurrences.
    `step` is for decoding: it drops nothing.

    Raises ValueError where sizes or ties do not fit, or a setting could not take effect.
    """

    def __init__(
        self,
        *,
        src_vocab_size: int,
        tgt_vocab_size: int,
        joint_vocabulary: bool,
        pad_id: int,
        bos_id: int,
        eos_id: int,
        embedding_size: int,
        readout_size: int | None,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        variational: bool,
        word_dropout: float,
        residual: bool,
        layer_norm: bool,
        tie_output: bool,
        tie_source: bool,
        gradient_checkpointing: bool,
        cell: Callable[..., Any],
        encoder: Callable[..., RecurrentEncoder],
        wiring: Callable[..., Decoder],
        attention: Callable[..., Attention] | None,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if tie_source and not joint_vocabulary:
            raise ValueError(
                "model.tie_source=true needs one joint vocabulary: "
                "set model.tie_source=false or data.tokenizer.joint=true"
            )
        if num_layers < 1:
            raise ValueError(f"model.num_layers must be at least 1, got {num_layers}")
        readout_size = embedding_size if readout_size is None else readout_size
        if readout_size < 1:
            raise ValueError(f"model.readout_size must be at least 1, got {readout_size}")
        if tie_output and readout_size != embedding_size:
            raise ValueError(
                f"model.tie_output=true needs readouts as wide as embeddings, got model.readout_size={readout_size} "
                f"and model.embedding_size={embedding_size}"
            )
        self.pad_id, self.bos_id, self.eos_id = pad_id, bos_id, eos_id
        self.num_layers, self.hidden_size = num_layers, hidden_size
        self.tgt_embedding = nn.Embedding(tgt_vocab_size, embedding_size, padding_idx=pad_id)
        self.src_embedding = (
            self.tgt_embedding
            if tie_source
            else nn.Embedding(src_vocab_size, embedding_size, padding_idx=pad_id)
        )
        # Without attention nothing reads the states: their projection would get no gradient, which stops DDP.
        unread = {"output_size": None} if attention is None else {}
        self.encoder = encoder(
            input_size=embedding_size,
            dropout=dropout,
            variational=variational,
            residual=residual,
            layer_norm=layer_norm,
            cell=cell,
            **unread,
        )
        if residual and max(num_layers, self.encoder.num_layers) == 1:
            raise ValueError(
                "model.residual=true needs a stack: set model.num_layers or model.encoder.num_layers above 1"
            )
        if attention is None and attention_dropout:
            raise ValueError(
                f"model.attention_dropout={attention_dropout} drops attention: attention=none has none"
            )
        self.decoder = wiring(
            DecoderSettings(
                embedding_size=embedding_size,
                readout_size=readout_size,
                hidden_size=hidden_size,
                num_layers=num_layers,
                dropout=dropout,
                attention_dropout=attention_dropout,
                residual=residual,
                memory_size=self.encoder.output_size,
                gradient_checkpointing=gradient_checkpointing,
                cell=cell,
                attention=attention,
            )
        )
        self.bridge = nn.Linear(  # W_s
            self.encoder.summary_size, self.decoder.rnn.num_states * num_layers * hidden_size
        )
        self.norm = nn.LayerNorm(readout_size) if layer_norm else nn.Identity()
        self.dropout = VariationalDropout(dropout) if variational else Dropout(dropout)
        self.word_dropout = WordDropout(word_dropout)
        self.output = kernels.Linear(self.decoder.readout_size, tgt_vocab_size)  # W_y
        self.apply(_start)
        for embedding in (self.src_embedding, self.tgt_embedding):
            nn.init.normal_(embedding.weight, std=embedding_size**-0.5)
            nn.init.zeros_(embedding.weight[pad_id])
        if tie_output:
            self.output.weight = self.tgt_embedding.weight

    @property
    def has_attention(self) -> bool:
        return self.decoder.attention is not None

    def encode(self, src: Tensor, src_mask: Tensor) -> Memory:
        embedded = self.dropout(self.word_dropout(self.src_embedding(src)))  # [B, S, E]
        states, summary = self.encoder(embedded, src_mask)
        attention = self.decoder.attention
        keys = None if attention is None else attention.project_keys(states)
        return Memory(states, src_mask, keys, summary)

    def init_state(self, memory: Memory) -> DecoderState:
        size = (self.decoder.rnn.num_states, self.num_layers, self.hidden_size)
        hidden, *cell = self.bridge(memory.summary).unflatten(-1, size).unbind(dim=1)  # [B, L, H] each
        return self.decoder.init_state((torch.tanh(hidden), *cell), memory)

    def read(self, memory: Memory, tgt_in: Tensor, *, need_weights: bool = False) -> Read:
        readout, weights, _ = self._unroll(memory, tgt_in)
        return Read(self.dropout(self.norm(readout)), weights if need_weights else None)

    def attentions(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Attentions:
        read = self._unroll(self.encode(src, src_mask), tgt_in)
        if read.weights is None:
            return Attentions(None, None, None)
        heads = read.weights.unsqueeze(1) if read.heads is None else read.heads  # [B, K, T, S]
        return Attentions(heads.unsqueeze(1), None, None)

    def step(
        self, tgt_prev: Tensor, state: DecoderState, memory: Memory, *, need_weights: bool = False
    ) -> Step:
        embedded = self.tgt_embedding(tgt_prev)  # [N, E]
        read, state = self.decoder.step(embedded, state, memory)
        return Step(self.output(self.norm(read.readout)), state, read.weights if need_weights else None)

    def _unroll(self, memory: Memory, tgt_in: Tensor) -> Readout:
        embedded = self.dropout(self.word_dropout(self.tgt_embedding(tgt_in)))  # [B, T, E]
        return self.decoder.unroll(embedded, self.init_state(memory), memory)
