"""Encodings that are added to token embeddings."""

from ropewalk.encodings.additive.binary import Binary
from ropewalk.encodings.additive.bipe import BiPE, bipe
from ropewalk.encodings.additive.fourier import Fourier, LearnedFourier
from ropewalk.encodings.additive.integer import Integer
from ropewalk.encodings.additive.learned import Learned
from ropewalk.encodings.additive.normalised import Normalised
from ropewalk.encodings.additive.randomized import randomized_code
from ropewalk.encodings.additive.sinusoidal import Sinusoidal

__all__ = [
    "BiPE",
    "Binary",
    "Fourier",
    "Integer",
    "Learned",
    "LearnedFourier",
    "Normalised",
    "Sinusoidal",
    "bipe",
    "randomized_code",
]
