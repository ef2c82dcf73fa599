"""Triton: phases, and their sin and cos.

The nearest quarter turn is split off in integers. For float32 arithmetic the 32 bits below it
become an angle by an integer product, so the float rounds once; for float64 all 62 bits count. The
Taylor polynomials leave less than 2e-9 out in float32 and 1e-16 in float64, on [−π/4, π/4].
"""

# The types within a kernel are Triton's own.
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import math

import triton
import triton.language as tl

RADIANS = tl.constexpr(2 * math.pi / 2.0**64)
"""Radians of a phase's unit."""
EIGHTH = tl.constexpr(round(math.pi / 4 * 2.0**31))
"""π/4 in units of 2⁻³¹ rad, in which an angle of at most π/4 is an int32."""
FINEST = tl.constexpr(2.0**-31)


@triton.jit
def phases(positions, axis_stride, rows, steps, pairs, AXES: tl.constexpr, PAIRS: tl.constexpr):
    """Σ_axes position · step mod 2⁶⁴ of a block: ``rows`` and ``pairs`` are its masks."""
    total = tl.load(positions, mask=rows, other=0) * tl.load(steps, mask=pairs, other=0)
    to_next_axis = tl.full((), 1, tl.int64) * axis_stride
    for _ in range(1, AXES):
        positions += to_next_axis
        steps += PAIRS
        total += tl.load(positions, mask=rows, other=0) * tl.load(steps, mask=pairs, other=0)
    return total


@triton.jit
def sincos(phase, WIDE: tl.constexpr):
    """sin and cos of int64 phases in float64 if ``WIDE``, else float32."""
    quadrant = ((phase >> 61) + 1) >> 1  # of which the last two bits count
    if WIDE:
        x = ((phase << 2) >> 2).to(tl.float64) * RADIANS
        z = x * x
        sine = x + x * z * _sine_64(z)
        cosine = 1.0 - (0.5 * z - z * z * _cosine_64(z))
    else:
        x = _angle_32(phase)
        z = x * x
        sine = x + x * z * _sine_32(z)
        cosine = 1.0 - (0.5 * z - z * z * _cosine_32(z))
    odd = (quadrant & 1) == 1
    first = tl.where(odd, cosine, sine)
    second = tl.where(odd, sine, cosine)
    first = tl.where((quadrant & 2) == 2, -first, first)
    second = tl.where(((quadrant + 1) & 2) == 2, -second, second)
    return first, second


@triton.jit
def scaled(values, factor):
    """values times a float64 ``factor``, in their own dtype."""
    if values.dtype == tl.float64:
        return values * factor
    else:
        return values * tl.cast(factor, tl.float32)


@triton.jit
def _angle_32(phase):
    """The 32 bits below the quarter turn in radians: int32 · int31, of which the top is kept."""
    below = ((phase << 2) >> 32).to(tl.int32)
    return ((below.to(tl.int64) * EIGHTH) >> 31).to(tl.int32).to(tl.float32) * FINEST


@triton.jit
def _sine_32(z):
    return ((1 / 362880 * z - 1 / 5040) * z + 1 / 120) * z - 1 / 6


@triton.jit
def _cosine_32(z):
    return ((-1 / 3628800 * z + 1 / 40320) * z - 1 / 720) * z + 1 / 24


@triton.jit
def _sine_64(z):
    tail = (-1 / 1307674368000 * z + 1 / 6227020800) * z - 1 / 39916800
    return (((tail * z + 1 / 362880) * z - 1 / 5040) * z + 1 / 120) * z - 1 / 6


@triton.jit
def _cosine_64(z):
    tail = (1 / 20922789888000 * z - 1 / 87178291200) * z + 1 / 479001600
    return (((tail * z - 1 / 3628800) * z + 1 / 40320) * z - 1 / 720) * z + 1 / 24


@triton.jit(do_not_specialize=["count", "tokens", "own_heads"])
def make_tables(
    positions,
    steps,
    cos,
    sin,
    scale: tl.float64,
    count,
    tokens,
    own_heads,
    AXES: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
):
    """cos and sin ``[..., heads, tokens, pairs]`` of ``count`` places; all contiguous."""
    own = tl.program_id(0) % own_heads
    block = (tl.program_id(0) // own_heads).to(tl.int64)
    place = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    pair = tl.arange(0, BLOCK_PAIRS)[None, :]
    rows, pairs = place < count, pair < PAIRS
    rates = steps + own * (AXES * PAIRS) + pair
    phase = phases(positions + place * AXES, 1, rows, rates, pairs, AXES, PAIRS)
    sine, cosine = sincos(phase, cos.dtype.element_ty == tl.float64)
    at = ((place // tokens * own_heads + own) * tokens + place % tokens) * PAIRS + pair
    tl.store(cos + at, scaled(cosine, scale), mask=rows & pairs)
    tl.store(sin + at, scaled(sine, scale), mask=rows & pairs)
