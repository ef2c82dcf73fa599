"""Positions: which integer each token gets."""

from ropewalk.positions.builders import (
    fixed,
    grid,
    left_padded,
    mask_segments,
    packed,
    segments,
    text,
)
from ropewalk.positions.levels import bilevel
from ropewalk.positions.sampled import randomized

__all__ = [
    "bilevel",
    "fixed",
    "grid",
    "left_padded",
    "mask_segments",
    "packed",
    "randomized",
    "segments",
    "text",
]
