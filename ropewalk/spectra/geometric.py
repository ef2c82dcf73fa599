"""Geometric frequencies: the spectrum of RoPE and of the sinusoidal encoding."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import cache

from ropewalk.spectra.arguments import check_base, check_even
from ropewalk.spectra.spectrum import Layout, Spectrum


@cache
def powers(base: float, count: int, denominator: float) -> tuple[float, ...]:
    r"""base^(−2c/denominator) for c = 0 … count−1.

    Computed with 50 decimal digits and rounded once to float64, so that every machine has the same
    frequencies, whatever the caller's decimal context is.
    """
    exact = Context(
        prec=50, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, clamp=0, traps=[]
    )
    with localcontext(exact):
        log = Decimal(check_base(base)).ln()
        scale = Decimal(denominator)
        found = tuple(float((log * (-2 * c) / scale).exp()) for c in range(count))
    if math.isinf(max(found, default=0.0)):
        raise ValueError(f"base={base!r} is so small that a frequency passes every float; use 1e4")
    return found


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
