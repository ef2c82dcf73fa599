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
from ropewalk.positions.sampled import randomized

__all__ = [
    "fixed",
    "grid",
    "left_padded",
    "mask_segments",
    "packed",
    "randomized",
    "segments",
    "text",
]
