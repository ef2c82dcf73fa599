"""Models of transformers: audited, converted, fused rotations in place of theirs, caches moved."""

from ropewalk.models.auditing import Audit, audit
from ropewalk.models.cache_moves import Moved, rerotate_cache, shift_cache
from ropewalk.models.conversion import Converted, convert
from ropewalk.models.patching import patch, unpatch
from ropewalk.models.report import Report
from ropewalk.models.rerotation import rerotate, rerotate_

__all__ = [
    "Audit",
    "Converted",
    "Moved",
    "Report",
    "audit",
    "convert",
    "patch",
    "rerotate",
    "rerotate_",
    "rerotate_cache",
    "shift_cache",
    "unpatch",
]
