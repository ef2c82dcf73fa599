r"""cos and sin of learned frequencies: exact phases, and derivatives of every order.

The frequencies are float parameters. What they hold at a call is turned into int64 steps, those of
:func:`ropewalk.spectra.step`, so phases add exactly at any position, as with a fixed spectrum. The
derivative rides on a zero,

.. math:: \cos(\varphi + δ) = \cos\varphi\cos δ - \sin\varphi\sin δ, \qquad
          δ = a - \mathrm{const}(a) = 0, \quad a = \textstyle\sum_n p_n f_n u

which changes no value and makes every derivative that of the angle a.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.kernels.angles import as_planes
from ropewalk.kernels.fused import needs_derivative
from ropewalk.kernels.opaque import decomposes, opaque
from ropewalk.kernels.phases import phase_tables
from ropewalk.spectra.turns import scaled_pi

_WHOLE = 2.0**64
_BITS = 29
"""Bits of each piece of 2⁶⁴/2π: times 24 bits of a frequency, float64 holds the product."""
_PI_BITS = 1280
_AFTER = 128
"""Bits after the point of 2⁶⁴/2π before it is cut into pieces."""


def _pieces() -> tuple[float, ...]:
    """2⁶⁴/2π as four floats of 29 bits, which add up to within 2⁻⁵⁵."""
    digits = (1 << 63 + _AFTER + _PI_BITS) // scaled_pi(_PI_BITS)
    pieces, shift = [], digits.bit_length()
    for _ in range(4):
        shift -= _BITS
        pieces.append(float((digits >> shift) << shift) * 2.0**-_AFTER)
        digits &= (1 << shift) - 1
    return tuple(pieces)


_PIECES = _pieces()


def _same_shape(freqs: Tensor, unit: float) -> Tensor:
    return torch.empty_like(freqs, dtype=torch.int64)


def _batched(op):
    def rule(info, in_dims, freqs, unit):
        return op(freqs, unit), in_dims[0]

    return rule


def _steps(freqs: Tensor, unit: float) -> Tensor:
    rest = freqs.to(torch.float64) * unit
    sign = torch.where(rest < 0, -1, 1)
    rest = rest.abs()
    total = torch.zeros_like(rest, dtype=torch.int64)
    fraction = torch.full_like(rest, 0.5)
    wide = freqs.dtype == torch.float64 or math.frexp(unit)[0] != 0.5
    for _ in range(3 if wide else 1):  # 24 bits of the frequency at a time
        part = rest.to(torch.float32).to(torch.float64)
        rest = rest - part
        for piece in _PIECES:
            product = part * piece
            whole = torch.floor(product)
            fraction = fraction + (product - whole)
            whole = whole - _WHOLE * torch.floor(whole / _WHOLE + 0.5)  # into [−2⁶³, 2⁶³)
            total = total + whole.to(torch.int64)
    return sign * (total + torch.floor(fraction).to(torch.int64))


learned_steps_op = opaque(
    "learned_steps(Tensor freqs, float unit) -> Tensor", fake=_same_shape, vmap=_batched
)(_steps)
decomposes(learned_steps_op)(_steps)


def learned_steps(freqs: Tensor, unit: float = 1.0) -> Tensor:
    """The int64 steps of the frequencies that a tensor holds; no gradient.

    Equal to :func:`ropewalk.spectra.step` of each value times ``unit`` (rounded to float64, which
    a power of two leaves exact), up to exact ties.

    Args:
        freqs: radians per coordinate, any floating dtype, |f·unit| < 2²⁴.
        unit: size of one integer position in coordinates.
    """
    return learned_steps_op(freqs.detach(), unit)


def learned_tables(
    positions: Tensor, freqs: Tensor, dtype: torch.dtype, unit: float = 1.0
) -> tuple[Tensor, Tensor]:
    """cos and sin of integer positions times learned frequencies.

    Args:
        positions: int64 ``[..., tokens]``, or ``[..., tokens, axes]`` with several axes.
        freqs: floating ``[axes, pairs]``, or ``[heads, axes, pairs]``.
        dtype: float32 or float64, of the result and of the derivative.
        unit: as in :func:`learned_steps`.

    Returns:
        Each ``[..., tokens, pairs]``, or ``[..., heads, tokens, pairs]``.
    """
    cos, sin = phase_tables(positions, learned_steps(freqs, unit), 1.0, dtype)
    if not needs_derivative(freqs):
        return cos, sin
    planes = as_planes(positions, freqs.shape[-2]).to(dtype) * unit
    if freqs.dim() == 3:
        planes = planes.unsqueeze(-3)
    wide = freqs.to(dtype)
    angle = planes[..., 0, None] * wide[..., 0, None, :]
    for axis in range(1, freqs.shape[-2]):
        angle = angle + planes[..., axis, None] * wide[..., axis, None, :]
    zero = angle - angle.detach()
    cosine, sine = torch.cos(zero), torch.sin(zero)
    return cos * cosine - sin * sine, sin * cosine + cos * sine
