"""Encoders: one class a kind, from source pieces to states."""

from nmt.encoders.base import Encoded, Encoder
from nmt.encoders.recurrent import RecurrentEncoder
from nmt.encoders.transformer import TransformerEncoder
