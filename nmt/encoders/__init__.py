"""Encoders: from source pieces to states."""

from nmt.encoders.base import Document, Encoded, Encoder
from nmt.encoders.hierarchical import HierarchicalEncoder
from nmt.encoders.recurrent import RecurrentEncoder
from nmt.encoders.transformer import TransformerEncoder
