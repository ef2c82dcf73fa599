"""Encodings that rotate q and k."""

from ropewalk.encodings.rotary.axial import AxialRoPE
from ropewalk.encodings.rotary.commuting import CommutingRoPE
from ropewalk.encodings.rotary.golden import GoldenRoPE
from ropewalk.encodings.rotary.lie import LieRoPE
from ropewalk.encodings.rotary.mixed import MixedRoPE
from ropewalk.encodings.rotary.mrope import mrope
from ropewalk.encodings.rotary.p_rope import p_rope
from ropewalk.encodings.rotary.rope import RoPE, rope
from ropewalk.encodings.rotary.string import StringRoPE
from ropewalk.encodings.rotary.tm_rope import TMRoPE
from ropewalk.encodings.rotary.video_rope import VideoRoPE

__all__ = [
    "AxialRoPE",
    "CommutingRoPE",
    "GoldenRoPE",
    "LieRoPE",
    "MixedRoPE",
    "RoPE",
    "StringRoPE",
    "TMRoPE",
    "VideoRoPE",
    "mrope",
    "p_rope",
    "rope",
]
