"""Greedy search, beam search, sampling and forced decoding, over the `Translator` interface only.

B sentences, K hypotheses a sentence (the beam), N = B * K, S source positions, V vocabulary, T steps; b of the
B sentences are still being searched. Every probability is the model's own: what a search may not choose is
left out, and nothing is renormalised, so that the log-probability of a hypothesis is the one that
`force_decode` gives to the same pieces.

A length limit counts pieces without EOS. A hypothesis that has used its limit up may only end: EOS is scored
there as everywhere else. The space searched is thus exactly the sequences that `Constraints` allow, each
closed by EOS, and a beam as wide as that space finds its best members.
"""

from nmt.decoding.beam import beam_search
from nmt.decoding.constraints import Constraints, PrefixError, block_repeats, length_limits
from nmt.decoding.forced import force_decode
from nmt.decoding.hypotheses import Hypothesis
from nmt.decoding.penalties import COVERAGE_FLOOR, coverage_penalty, length_penalty
from nmt.decoding.sampling import draw, greedy_search, sample
from nmt.decoding.search import search
from nmt.decoding.settings import BEAM, DecodingSettings
