"""Attention by head of Hugging Face transformers and of runs: measures, importance, words; and explanations of runs.

`explanation` has one interface for all methods. `teacher_forcing` computes log-probabilities for them; each method is a
file: `value_norms`, `rollout`, `gradients`, `occlusion`.
"""

from nmt.analysis.attentions import LayerAttentions, from_run, from_transformers, to_bertviz
from nmt.analysis.explanation import Explanation, explain
from nmt.analysis.heads import head_importance, head_measures, head_table
from nmt.analysis.words import between_words, words_of
