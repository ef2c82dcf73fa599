"""Phases and rotations as operations on tensors.

The PyTorch reference is what runs everywhere; :func:`active` names the kernels in use.
"""

from ropewalk.kernels.devices import active
from ropewalk.kernels.phases import phase, sincos, tables
from ropewalk.kernels.rotate import (
    halve_tables,
    rotate,
    rotate_,
    rotate_by,
    rotate_by_,
    rotate_qk,
    rotate_qk_,
)
from ropewalk.kernels.steps import Steps

__all__ = [
    "Steps",
    "active",
    "halve_tables",
    "phase",
    "rotate",
    "rotate_",
    "rotate_by",
    "rotate_by_",
    "rotate_qk",
    "rotate_qk_",
    "sincos",
    "tables",
]
