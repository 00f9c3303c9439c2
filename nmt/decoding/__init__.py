"""Greedy search, beam search, sampling and forced decoding, over the `Translator` interface only.

B sentences, K hypotheses per sentence (the beam), N = B * K, S source positions, V vocabulary, T steps; b of the B
sentences are still being searched. Probabilities are those of the model. A search leaves out forbidden pieces and
renormalises nothing, so `force_decode` gives the same log-probability to the same pieces.

A length limit counts pieces without EOS. A hypothesis at its limit may only end, and EOS is scored there as
everywhere else. So the search space is exactly the sequences that `Constraints` allow, closed by EOS, and a beam as
wide as that space finds its best members.
"""

from nmt.decoding.beam import beam_search
from nmt.decoding.constraints import Constraints, PrefixError, block_repeats, length_limits
from nmt.decoding.forced import force_decode
from nmt.decoding.hypotheses import Hypothesis
from nmt.decoding.penalties import COVERAGE_FLOOR, coverage_penalty, length_penalty
from nmt.decoding.sampling import draw, greedy_search, sample
from nmt.decoding.search import search
from nmt.decoding.settings import BEAM, DecodingSettings
