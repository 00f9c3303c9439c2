"""Fast forms of the slowest parts of a translator. Except in `int8`, values and gradients are those of the plain
forms.

    affine                 a linear map, by the library that is faster on the processor
    linear_cross_entropy   output layer and loss together, a few rows at a time: the logits never exist as a whole
    linear_r_drop          the same for the two passes of R-Drop
    gradients_at_once      the weight gradients of a recurrence as a single product over all its steps
    packed_weights         the weights of searches, copied once into the order that the products of few rows read
    best                   the largest of many scores, without a partial sort of all
    gru_sequence, gru_cell the gates of a GRU in few passes over memory
    Recorder               the work of a step on a GPU, recorded once per shape of a batch and launched by one call
    quantise               linear maps in bytes, for translation on a CPU (`int8=true`)

The models always call these functions. With `kernels=plain` they run the plain forms, and tests hold both forms
equal. `gru_sequence` is for the CPU; a GPU uses cuDNN. Under autocast to bfloat16 the fast forms multiply in
bfloat16, and keep states, gates, output probabilities and sums in float32. Under autocast to another type the plain
forms run.
"""

from nmt.kernels.best import best
from nmt.kernels.choice import NAMES, fast, use, using
from nmt.kernels.graphs import Recorder, records
from nmt.kernels.gru import gru_cell, gru_sequence, plain_gru_cell
from nmt.kernels.int8 import quantise
from nmt.kernels.linear import Linear, fast_linear, gradients_at_once, product
from nmt.kernels.loss import linear_cross_entropy, linear_r_drop
from nmt.kernels.onednn import affine
from nmt.kernels.packed import packed_weights
