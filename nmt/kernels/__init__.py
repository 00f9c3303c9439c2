"""The fast forms of what a translator spends its time on, exact but for the last: same values, same gradients.

    linear_cross_entropy   output layer and loss together, a few rows at a time: the logits never exist whole
    linear_r_drop          the same for the two passes of R-Drop
    gradients_at_once      the weight gradients of a recurrence as one product over all its steps
    packed_weights         the weights of a search laid out once for the products of all its steps
    best                   the largest of many scores without a partial sort of all
    gru_sequence, gru_cell the gates of a GRU in few passes over memory
    quantise               linear maps in bytes, for translating on a CPU where that was asked for (`int8=true`)

The models call these and read the same either way; `kernels=plain` runs the plain form beside each, which is
what the tests hold it equal to. The recurrences' forms are for the CPU: on a GPU cuDNN has its own.

Under a CPU's autocast to bfloat16 (`trainer.precision=bf16-mixed`) the fast forms multiply in it, and keep states,
gates, the output's probabilities and sums in float32; under any other autocast everything is plain.
"""

from nmt.kernels.best import best
from nmt.kernels.choice import NAMES, fast, use, using
from nmt.kernels.gru import gru_cell, gru_sequence, plain_gru_cell
from nmt.kernels.int8 import quantise
from nmt.kernels.loss import linear_cross_entropy, linear_r_drop
from nmt.kernels.packed import packed_weights
from nmt.kernels.steps import Linear, gradients_at_once, linear, product
