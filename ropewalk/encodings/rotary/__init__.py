"""Encodings that rotate q and k."""

from ropewalk.encodings.rotary.axial import AxialRoPE
from ropewalk.encodings.rotary.mixed import MixedRoPE
from ropewalk.encodings.rotary.p_rope import p_rope
from ropewalk.encodings.rotary.rope import RoPE, rope

__all__ = ["AxialRoPE", "MixedRoPE", "RoPE", "p_rope", "rope"]
