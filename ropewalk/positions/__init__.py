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
from ropewalk.positions.hierarchy import levels, levels_of

__all__ = [
    "fixed",
    "grid",
    "left_padded",
    "levels",
    "levels_of",
    "mask_segments",
    "packed",
    "segments",
    "text",
]
