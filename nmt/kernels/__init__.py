"""Fast forms of a translator's slowest parts: the same values and gradients as the plain forms, except in `int8`.

    linear_cross_entropy   output layer and loss together, a few rows at a time: the logits never exist whole
    linear_r_drop          the same for the two passes of R-Drop
    gradients_at_once      the weight gradients of a recurrence as one product over all its steps
    packed_weights         the weights of a search laid out once for the products of all its steps
    best                   the largest of many scores without a partial sort of all
    gru_sequence, gru_cell the gates of a GRU in few passes over memory
    Recorder               a whole step's work on a GPU, recorded once for each shape of a batch and launched as one
    quantise               linear maps in bytes, for translating on a CPU (`int8=true`)

The models call these in either case; with `kernels=plain` they run the plain forms, which tests hold them equal to.
The recurrence over a whole sequence is for the CPU: a GPU has cuDNN's. Under autocast to bfloat16 the fast forms
multiply in it, and keep states, gates, the output's probabilities and sums in float32; under any other all is plain.
"""

from nmt.kernels.best import best
from nmt.kernels.choice import NAMES, fast, use, using
from nmt.kernels.graphs import Recorder, records
from nmt.kernels.gru import gru_cell, gru_sequence, plain_gru_cell
from nmt.kernels.int8 import quantise
from nmt.kernels.linear import Linear, fast_linear, gradients_at_once, product
from nmt.kernels.loss import linear_cross_entropy, linear_r_drop
from nmt.kernels.packed import packed_weights
