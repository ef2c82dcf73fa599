"""Live models of transformers: fused rotations in place of their own, and their caches moved."""

from ropewalk.models.cache_moves import Moved, rerotate_cache, shift_cache
from ropewalk.models.conversion import Converted, convert
from ropewalk.models.patching import patch, unpatch
from ropewalk.models.report import Report
from ropewalk.models.rerotation import rerotate, rerotate_

__all__ = [
    "Converted",
    "Moved",
    "Report",
    "convert",
    "patch",
    "rerotate",
    "rerotate_",
    "rerotate_cache",
    "shift_cache",
    "unpatch",
]
