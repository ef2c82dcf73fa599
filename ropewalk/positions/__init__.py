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

__all__ = ["fixed", "grid", "left_padded", "mask_segments", "packed", "segments", "text"]
