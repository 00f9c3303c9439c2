"""Attention by head, of Hugging Face transformers and of runs: measures, importance, and words."""

from nmt.analysis.attentions import LayerAttentions, from_run, from_transformers, to_bertviz
from nmt.analysis.heads import head_importance, head_measures, head_table
from nmt.analysis.words import between_words, words_of
