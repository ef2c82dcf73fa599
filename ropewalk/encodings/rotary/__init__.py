"""Encodings that transform q and k."""

from ropewalk.encodings.rotary.axial import AxialRoPE
from ropewalk.encodings.rotary.cope_clipped import cope_clipped
from ropewalk.encodings.rotary.hope_chen import hope_chen
from ropewalk.encodings.rotary.nope import NoPE
from ropewalk.encodings.rotary.p_rope import p_rope
from ropewalk.encodings.rotary.resonance import resonance
from ropewalk.encodings.rotary.rope import RoPE, rope
from ropewalk.encodings.rotary.xpos import XPos

__all__ = [
    "AxialRoPE",
    "NoPE",
    "RoPE",
    "XPos",
    "cope_clipped",
    "hope_chen",
    "p_rope",
    "resonance",
    "rope",
]
