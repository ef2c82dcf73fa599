"""Encodings that rotate q and k."""

from ropewalk.encodings.rotary.axial import AxialRoPE
from ropewalk.encodings.rotary.mrope import mrope
from ropewalk.encodings.rotary.p_rope import p_rope
from ropewalk.encodings.rotary.rope import RoPE, rope
from ropewalk.encodings.rotary.tm_rope import TMRoPE
from ropewalk.encodings.rotary.video_rope import VideoRoPE

__all__ = ["AxialRoPE", "RoPE", "TMRoPE", "VideoRoPE", "mrope", "p_rope", "rope"]
