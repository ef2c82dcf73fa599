r"""Phases from integers that never overflow: what exported graphs hold in place of our operators.

A runtime that is not PyTorch need not wrap a 64-bit product at 2⁶⁴, and what folds its constants
may not either. So positions p are cut into halves of 32 bits and steps s into limbs of 16, and of

.. math:: p \cdot s = \sum_{i, j} p_j \, s_i \, 2^{16 i + 32 j}

each product is below 2⁴⁸, each sum below 2⁶², and whole turns are masked off. It is the same phase,
bit for bit, at any int64 position; and there are no carries, so it takes few operations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

_LIMB, _HALF, _QUARTER = (1 << 16) - 1, (1 << 32) - 1, (1 << 46) - 1


class Reduced(NamedTuple):
    """A phase as quarter turns and what remains, each ``[..., tokens, pairs]``."""

    odd: Tensor
    """Boolean: one or three quarter turns."""
    half: Tensor
    """Boolean: two or three quarter turns."""
    remainder: Tensor
    """int64 in [−2⁶¹, 2⁶¹ + axes · 2⁴⁸), units of 2⁻⁶⁴ turn."""


def reduced_phase(positions: Tensor, steps: Tensor) -> Reduced:
    """Σ_axes position · step, reduced to an eighth of a turn, or axes · 2⁻¹⁶ turn more.

    Args:
        positions: int64 ``[..., tokens, axes]``, with at most 2¹² axes.
        steps: int64 ``[axes, pairs]`` or ``[heads, axes, pairs]``, which puts heads before tokens.
    """
    if steps.dim() == 3:
        positions = positions.unsqueeze(-3)
    low, high = positions & _HALF, (positions >> 32) & _HALF
    limbs = [(steps >> shift) & _LIMB for shift in (0, 16, 32, 48)]

    def product(half: Tensor, limb: Tensor) -> Tensor:
        total = half[..., 0, None] * limb[..., 0, None, :]
        for axis in range(1, steps.shape[-2]):
            total = total + half[..., axis, None] * limb[..., axis, None, :]
        return total

    third = (product(low, limbs[2]) + product(high, limbs[0])) & _HALF
    fourth = (product(low, limbs[3]) + product(high, limbs[1])) & _LIMB
    # In units of 2⁻⁴⁸ turn, an eighth ahead: its top two bits are the nearest quarter turn.
    ahead = product(low, limbs[1]) + third * (1 << 16) + fourth * (1 << 32) + (1 << 45)
    rest = (ahead & _QUARTER) - (1 << 45)
    return Reduced(
        (ahead & (1 << 46)) != 0,
        (ahead & (1 << 47)) != 0,
        rest * (1 << 16) + product(low, limbs[0]),
    )


def exact_constant(like: Tensor, value: float) -> Tensor:
    """``value`` as a float64 scalar on the device of ``like``, in any graph.

    Exporters to ONNX narrow a Python float to float32 before they widen it, and leave whole numbers
    and powers of two as they are.
    """
    mantissa, exponent = math.frexp(value)
    whole = like.new_full((), int(mantissa * 2**53), dtype=torch.float64)
    return whole * 2.0 ** (exponent - 53)
