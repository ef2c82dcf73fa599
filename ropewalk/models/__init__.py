"""Live models of transformers: fused rotations in place of their own."""

from ropewalk.models.patching import patch, unpatch
from ropewalk.models.report import Report

__all__ = ["Report", "patch", "unpatch"]
