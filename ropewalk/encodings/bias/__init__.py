"""Encodings that add a number to each logit."""

from ropewalk.encodings.bias.alibi import ALiBi, alibi_slopes, geometric_slopes
from ropewalk.encodings.bias.fire import Fire
from ropewalk.encodings.bias.kerple import Kerple
from ropewalk.encodings.bias.sandwich import Sandwich
from ropewalk.encodings.bias.t5 import T5

__all__ = ["T5", "ALiBi", "Fire", "Kerple", "Sandwich", "alibi_slopes", "geometric_slopes"]
