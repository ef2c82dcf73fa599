"""Oracles of the numeric tests: mpmath for phases, literal float64 loops for rotations.

Nothing here uses the code under test.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias

import mpmath
import torch
from torch import Tensor

Real: TypeAlias = Any
"""An mpmath number."""

HALF_STEP = math.pi * 2.0**-64
"""Radians per position by which a rounded step may depart from its frequency (1.7e-19)."""


def _digits(*factors: float) -> int:
    """Decimal digits that leave 60 behind the point of a product of these."""
    size = sum(math.log10(abs(f)) for f in factors if f)
    return 60 + max(0, math.ceil(size))


def mp_step(frequency: float, unit: float = 1.0) -> int:
    """nint(frequency · unit / 2π · 2⁶⁴) as a signed 64-bit integer."""
    with mpmath.workdps(_digits(frequency, unit, 2.0**64)):
        exact = mpmath.mpf(frequency) * mpmath.mpf(unit) / (2 * mpmath.pi)
        wrapped = int(mpmath.nint(exact * mpmath.mpf(2) ** 64)) % 2**64
    return wrapped - 2**64 if wrapped >= 2**63 else wrapped


def mp_angle(position: int, frequency: float, unit: float = 1.0) -> Real:
    """position · frequency · unit in (−π, π]."""
    with mpmath.workdps(_digits(float(position), frequency, unit)):
        angle = mpmath.mpf(position) * mpmath.mpf(frequency) * mpmath.mpf(unit)
        angle -= 2 * mpmath.pi * mpmath.nint(angle / (2 * mpmath.pi))
    return angle


def mp_sincos(position: int, frequency: float, unit: float = 1.0) -> tuple[Real, Real]:
    """sin and cos of position · frequency · unit to 60 digits."""
    with mpmath.workdps(60):
        angle = mp_angle(position, frequency, unit)
        return mpmath.sin(angle), mpmath.cos(angle)


def lane_pairs(spectrum) -> list[tuple[int, int]]:
    """Both lanes of every pair, from the definition of layout and pairing."""
    first, pairs, head_dim = spectrum.lane_offset, spectrum.pairs, spectrum.head_dim
    if spectrum.layout == "interleaved":
        return [(first + 2 * c, first + 2 * c + 1) for c in range(pairs)]
    distance = head_dim // 2 if spectrum.pairing == "proportional" else pairs
    return [(first + c, first + c + distance) for c in range(pairs)]


def loop_rotate(
    x: Tensor, positions: Tensor, spectrum, *, inverse: bool = False, transpose: bool = False
) -> Tensor:
    """x ``[batch, heads, tokens, head_dim]`` rotated number by number, float64.

    ``positions`` are ``[batch, tokens, axes]``. ``transpose`` turns by −angle and multiplies by
    attention_factor, which is what backward does to a cotangent.
    """
    batch, heads, tokens, _ = x.shape
    result = x.detach().to(torch.float64).clone()
    scale = 1 / spectrum.attention_factor if inverse else spectrum.attention_factor
    sign = -1 if inverse or transpose else 1
    where, values = positions.tolist(), result.tolist()
    for b, h, t in product(range(batch), range(heads), range(tokens)):
        freqs = _own(spectrum, h, heads)
        row = values[b][h][t]
        for pair, (i, j) in enumerate(lane_pairs(spectrum)):
            angle = sum(
                float(mp_angle(p, line[pair], spectrum.unit))
                for p, line in zip(where[b][t], freqs, strict=True)
            )
            cos, sin = scale * math.cos(angle), sign * scale * math.sin(angle)
            row[i], row[j] = row[i] * cos - row[j] * sin, row[i] * sin + row[j] * cos
    return torch.tensor(values, dtype=torch.float64).reshape(x.shape)


def _own(spectrum, head: int, heads: int) -> Sequence[Sequence[float]]:
    """The frequencies ``[axes][pairs]`` of one query head."""
    if spectrum.heads is None:
        return spectrum.freqs
    return spectrum.freqs[head // (heads // spectrum.heads)]


def odd_views(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Tensors with the values of x ``[batch, heads, tokens, dim]`` and unusual strides."""
    batch, heads, tokens, dim = x.shape
    yield "token-major", x.transpose(1, 2).contiguous().transpose(1, 2)
    packed = torch.full((batch, tokens, 3, heads, dim), math.nan, dtype=x.dtype)
    packed[:, :, 1] = x.transpose(1, 2)
    yield "slice of packed qkv", packed[:, :, 1].transpose(1, 2)
    spread = torch.full((batch, heads, tokens, 2 * dim), math.nan, dtype=x.dtype)
    spread[..., ::2] = x
    yield "every second lane", spread[..., ::2]
    yield "lanes first", x.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0)
    buffer = torch.full((x.numel() + 3,), math.nan, dtype=x.dtype)
    buffer[3:] = x.reshape(-1)
    yield "odd storage offset", buffer[3:].view(x.shape)
