"""Phases and rotations as operations on tensors.

The PyTorch reference is what runs everywhere; :func:`active` names the kernel in use.
"""

from ropewalk.kernels.angles import phase, sincos
from ropewalk.kernels.devices import active
from ropewalk.kernels.exits import Exit, tables_for
from ropewalk.kernels.normed import norm_rotate, norm_rotate_, norm_rotate_qk, norm_rotate_qk_
from ropewalk.kernels.opaque import decompositions
from ropewalk.kernels.pages import rotate_into_pages
from ropewalk.kernels.phases import tables
from ropewalk.kernels.rotate import rotate, rotate_, rotate_qk, rotate_qk_
from ropewalk.kernels.rotate_by import halve_tables, rotate_by, rotate_by_, rotate_qk_by
from ropewalk.kernels.steps import Steps

__all__ = [
    "Exit",
    "Steps",
    "active",
    "decompositions",
    "halve_tables",
    "norm_rotate",
    "norm_rotate_",
    "norm_rotate_qk",
    "norm_rotate_qk_",
    "phase",
    "rotate",
    "rotate_",
    "rotate_by",
    "rotate_by_",
    "rotate_into_pages",
    "rotate_qk",
    "rotate_qk_",
    "rotate_qk_by",
    "sincos",
    "tables",
    "tables_for",
]
