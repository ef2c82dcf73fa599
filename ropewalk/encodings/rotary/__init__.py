"""Encodings that transform q and k."""

from ropewalk.encodings.rotary.axial import AxialRoPE
from ropewalk.encodings.rotary.commuting import CommutingRoPE
from ropewalk.encodings.rotary.cope_clipped import cope_clipped
from ropewalk.encodings.rotary.fope import FoPE
from ropewalk.encodings.rotary.golden import GoldenRoPE
from ropewalk.encodings.rotary.hirope import hirope
from ropewalk.encodings.rotary.hope_chen import hope_chen
from ropewalk.encodings.rotary.hope_dai import HyperbolicRoPE
from ropewalk.encodings.rotary.lerope import LeRoPE
from ropewalk.encodings.rotary.lie import LieRoPE
from ropewalk.encodings.rotary.mixed import MixedRoPE
from ropewalk.encodings.rotary.mrope import mrope
from ropewalk.encodings.rotary.nope import NoPE
from ropewalk.encodings.rotary.p_rope import p_rope
from ropewalk.encodings.rotary.pope import PoPE
from ropewalk.encodings.rotary.resonance import resonance
from ropewalk.encodings.rotary.rope import RoPE, rope
from ropewalk.encodings.rotary.rope_pp import ImaginaryRoPE
from ropewalk.encodings.rotary.string import StringRoPE
from ropewalk.encodings.rotary.tm_rope import TMRoPE
from ropewalk.encodings.rotary.video_rope import VideoRoPE
from ropewalk.encodings.rotary.xpos import XPos

__all__ = [
    "AxialRoPE",
    "CommutingRoPE",
    "FoPE",
    "GoldenRoPE",
    "HyperbolicRoPE",
    "ImaginaryRoPE",
    "LeRoPE",
    "LieRoPE",
    "MixedRoPE",
    "NoPE",
    "PoPE",
    "RoPE",
    "StringRoPE",
    "TMRoPE",
    "VideoRoPE",
    "XPos",
    "cope_clipped",
    "hirope",
    "hope_chen",
    "mrope",
    "p_rope",
    "resonance",
    "rope",
]
