"""Decoders: from encoder states to the features that the output layer reads."""

from nmt.decoders.base import Decoder, DecoderStep, Read
from nmt.decoders.pooling import PoolingDecoder
from nmt.decoders.recurrent import RecurrentDecoder
from nmt.decoders.transformer import TransformerDecoder
from nmt.decoders.wirings import AttendThenUpdate, Conditional, UpdateThenAttend
