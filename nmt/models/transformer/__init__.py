"""The Transformer (Vaswani et al. 2017): an encoder and a decoder of attention alone, layer norms before or after.

    h = encoder(E x + P)      r = decoder(E y + P, h)      p(y_t | y_<t, x) = softmax(W_y r_t)

Beside the package's letters: H is the model's size, L its layers, K its heads, d = H / K a head's size.
"""

from nmt.layers.positions import LearnedPositions, SinusoidalPositions
from nmt.models.transformer.translator import TransformerTranslator

__all__ = ["LearnedPositions", "SinusoidalPositions", "TransformerTranslator"]
