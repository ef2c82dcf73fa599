"""Encodings whose logits read content, or choose a rotation for each pair of tokens."""

from ropewalk.encodings.contextual.cope import CoPE
from ropewalk.encodings.contextual.fox import FoX

__all__ = ["CoPE", "FoX"]
