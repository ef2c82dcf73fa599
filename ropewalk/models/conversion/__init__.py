"""Checkpoints written with rotated lanes paired in another layout, with proof."""

from ropewalk.models.conversion.conversion import convert
from ropewalk.models.conversion.report import Converted

__all__ = ["Converted", "convert"]
