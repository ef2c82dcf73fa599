r"""Phases and their sin and cos in PyTorch's own operations: p · step mod 2⁶⁴, in int64.

Never traced: compilers see these only inside opaque operators (:mod:`ropewalk.kernels.phases`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.kernels.portable import Reduced, exact_constant

_QUARTER = 1 << 62
_EIGHTH = 1 << 61
_RADIANS = 2 * math.pi / 2.0**64
_RADIANS_27 = round(2 * math.pi * 2**27)
"""A turn in units of 2⁻²⁷ rad: 30 bits, so that it times 32 bits of a remainder fits int64."""
_WITHOUT_FLOAT64 = frozenset({"mps"})
"""Device types that lack float64."""


def phase(positions: Tensor, steps: Tensor) -> Tensor:
    """Σ_axes position · step mod 2⁶⁴, in units of 2⁻⁶⁴ turn.

    Args:
        positions: int64 ``[..., tokens, axes]``.
        steps: int64 ``[axes, pairs]`` or ``[heads, axes, pairs]``.

    Returns:
        int64 ``[..., tokens, pairs]``, or ``[..., heads, tokens, pairs]``.
    """
    if steps.dim() == 3:
        positions = positions.unsqueeze(-3)
    total = positions[..., 0, None] * steps[..., 0, None, :]
    for axis in range(1, steps.shape[-2]):
        total = total + positions[..., axis, None] * steps[..., axis, None, :]
    return total


def sincos(phases: Tensor, dtype: torch.dtype, factor: float = 1.0) -> tuple[Tensor, Tensor]:
    """sin and cos of int64 phases, times ``factor``, rounded once to ``dtype``.

    The nearest quarter turn is split off in integers, so the float only ever sees
    [−π/4, π/4]: error ≤ 1e-15 for float64, ≤ 1.2e-7 for float32.
    """
    quadrant = (phases + _EIGHTH) >> 62
    remainder = phases - quadrant * _QUARTER
    return sincos_of(Reduced((quadrant & 1) != 0, (quadrant & 2) != 0, remainder), dtype, factor)


def sincos_of(reduced: Reduced, dtype: torch.dtype, factor: float) -> tuple[Tensor, Tensor]:
    """:func:`sincos` of a phase that is reduced already."""
    remainder = reduced.remainder
    if remainder.device.type in _WITHOUT_FLOAT64:
        (sine, cosine), scale = _small_float32(remainder), factor
    else:
        (sine, cosine), scale = _small_float64(remainder), exact_constant(remainder, factor)
    if factor != 1.0:
        sine, cosine = sine * scale, cosine * scale
    return _turn_quarters(sine.to(dtype), cosine.to(dtype), reduced.odd, reduced.half)


def _small_float64(remainder: Tensor) -> tuple[Tensor, Tensor]:
    """sin and cos of a remainder in [−2⁶¹, 2⁶¹), that is [−π/4, π/4) rad."""
    angle = remainder.to(torch.float64) * exact_constant(remainder, _RADIANS)
    return torch.sin(angle), torch.cos(angle)


def _small_float32(remainder: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`_small_float64` for devices without float64.

    The angle is multiplied out in integers, in units of 2⁻⁶¹ rad, so that float32 rounds it once.
    """
    angle = ((remainder >> 30) * _RADIANS_27).to(torch.float32) * 2.0**-61
    return torch.sin(angle), torch.cos(angle)


def _turn_quarters(
    sine: Tensor, cosine: Tensor, odd: Tensor, half: Tensor
) -> tuple[Tensor, Tensor]:
    """sin and cos after one (odd), two (half) or three (both) more quarter turns."""
    first, second = torch.where(odd, cosine, sine), torch.where(odd, sine, cosine)
    return torch.where(half, -first, first), torch.where(odd ^ half, -second, second)


def as_planes(positions: Tensor, axes: int) -> Tensor:
    """Positions with their axes as the last dimension, also when there is one axis."""
    return positions.unsqueeze(-1) if axes == 1 else positions


def tables_by_torch(
    positions: Tensor, steps: Tensor, factor: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin of the phases of integer positions, times ``factor``, in ``dtype``."""
    phases = phase(as_planes(positions, steps.shape[-2]), steps)
    if dtype == torch.float64 or phases.device.type in _WITHOUT_FLOAT64:
        sine, cosine = sincos(phases, dtype, factor)
        return cosine, sine
    # float64 to spare: the signed phase is one angle in [−π, π), at a third of the passes
    angle = phases.to(torch.float64).mul_(_RADIANS)
    sine, cosine = angle.sin(), angle.cos_()
    if factor != 1.0:
        sine, cosine = sine.mul_(factor), cosine.mul_(factor)
    return cosine.to(dtype), sine.to(dtype)
