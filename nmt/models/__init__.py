"""Translators: an encoder joined to a decoder, and ensembles."""

from nmt.models.base import Attentions, Forward, Step, Translator, select
from nmt.models.encoder_decoder import EncoderDecoder
from nmt.models.ensemble import EnsembleTranslator
