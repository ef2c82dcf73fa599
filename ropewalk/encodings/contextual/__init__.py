"""Encodings whose logits read content, or choose a rotation for each pair of tokens."""

from ropewalk.encodings.contextual.cope import CoPE
from ropewalk.encodings.contextual.dape import DAPE
from ropewalk.encodings.contextual.dual_chunk import DualChunk
from ropewalk.encodings.contextual.fox import FoX
from ropewalk.encodings.contextual.path import PaTH
from ropewalk.encodings.contextual.rerope import ReRoPE
from ropewalk.encodings.contextual.selective_rope import SelectiveRoPE
from ropewalk.encodings.contextual.self_extend import SelfExtend
from ropewalk.encodings.contextual.shaw import Shaw
from ropewalk.encodings.contextual.transformer_xl import TransformerXL
from ropewalk.encodings.contextual.wavelet import Wavelet

__all__ = [
    "DAPE",
    "CoPE",
    "DualChunk",
    "FoX",
    "PaTH",
    "ReRoPE",
    "SelectiveRoPE",
    "SelfExtend",
    "Shaw",
    "TransformerXL",
    "Wavelet",
]
