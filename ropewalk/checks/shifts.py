"""Directions along which positions are shifted."""

from __future__ import annotations

import torch
from torch import Tensor

SHIFTS = (1, 1000, 2**20)
"""The shifts of the checks; where positions end, those that fit are used."""

BASE = 4096
"""Unshifted positions lie below this."""


def directions(axes: int) -> dict[str, Tensor]:
    """Unit moves ``[axes]`` by name: ``axis_0``, …, and ``jointly``; one axis has the last alone.

    ``positions + by * direction`` moves ``[n]`` and ``[n, axes]`` alike.
    """
    jointly = {"jointly": torch.ones(axes, dtype=torch.int64)}
    if axes == 1:
        return jointly
    return {f"axis_{a}": row for a, row in enumerate(torch.eye(axes, dtype=torch.int64))} | jointly


def fitting(count: int, room: int) -> list[int]:
    """The shifts that leave ``room`` positions out of ``count``."""
    return [by for by in SHIFTS if by + room <= count]
