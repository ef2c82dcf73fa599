"""Geometric frequencies: the spectrum of RoPE and of the sinusoidal encoding."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache

from ropewalk.spectra.spectrum import Layout, Spectrum


def check_base(base: float) -> float:
    """``base`` as a float.

    Raises:
        ValueError: base is not a finite number above 0.
    """
    if isinstance(base, bool) or not isinstance(base, (int, float)):
        raise TypeError(f"base={base!r} must be a number, such as 10000.0")
    if not (math.isfinite(base) and base > 0):
        raise ValueError(f"base={base!r} must be finite and above 0, such as 10000.0")
    return float(base)


def check_even(name: str, value: int, at_least: int = 2) -> int:
    """``value`` if it is an even int ≥ at_least.

    Raises:
        TypeError: not an int.
        ValueError: odd or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} must be an int")
    if value < at_least or value % 2:
        near = max(at_least, value + value % 2)
        raise ValueError(
            f"{name}={value} must be even and at least {at_least}, since lanes turn in pairs; "
            f"use {near}"
        )
    return value


@cache
def powers(base: float, count: int, denominator: float) -> tuple[float, ...]:
    r"""base^(−2c/denominator) for c = 0 … count−1.

    Computed with 50 decimal digits and rounded once to float64, so that every machine has the same
    frequencies.
    """
    with localcontext() as context:
        context.prec = 50
        log = Decimal(check_base(base)).ln()
        scale = Decimal(denominator)
        return tuple(float((log * (-2 * c) / scale).exp()) for c in range(count))


def geometric(
    head_dim: int,
    base: float = 10000.0,
    *,
    rotary_dim: int | None = None,
    layout: Layout = "half",
    lane_offset: int = 0,
) -> Spectrum:
    r"""One axis, θ_c = base^(−2c/rotary_dim) for c = 0 … rotary_dim/2 − 1.

    Args:
        head_dim: width of a head.
        base: rope_theta, > 0.
        rotary_dim: rotated lanes, even; all of head_dim if None.
        layout: how lanes pair, see :class:`Spectrum`.
        lane_offset: the first rotated lane.

    Raises:
        TypeError, ValueError: a value is out of range; the message names it and the remedy.

    Source: RoFormer (Su et al., 2021), equation 15; rotary_dim < head_dim as in GPT-NeoX (2022).
    """
    if rotary_dim is None:
        rotary_dim = check_even("head_dim", head_dim)
    check_even("rotary_dim", rotary_dim)
    row = powers(check_base(base), rotary_dim // 2, rotary_dim)
    return Spectrum((row,), head_dim, layout=layout, lane_offset=lane_offset)
