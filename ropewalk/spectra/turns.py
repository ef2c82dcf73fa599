r"""Turns and radians in exact integer arithmetic.

A frequency f (radians per unit of position, any finite float64) becomes a *step*

.. math:: s = \mathrm{round}\bigl(f \cdot u \,/\, 2\pi \cdot 2^{64}\bigr) \bmod 2^{64}

in units of 2⁻⁶⁴ turn, where u is the coordinate unit. The rational values of f and u and a long
integer π enter; no float is rounded on the way. The phase of an integer position p is then
``p · s mod 2⁶⁴``, exactly additive in p, and departs from p·f·u by at most π·2⁻⁶⁴·|p|
(1.7e-19·|p|) radians.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

from ropewalk.spectra.arguments import check_int, check_number

_PI_BITS = 1280
"""Enough for the largest float64 (1024 bits) and 64 bits of position with 192 bits to spare."""


def _scaled_arctan_inverse(n: int, bits: int) -> int:
    """⌊2^bits · arctan(1/n)⌋ up to a few units in the last place, by its Taylor series."""
    power = (1 << bits) // n
    total, k, square = power, 1, n * n
    while power:
        power //= square
        k += 2
        total += -power // k if k % 4 == 3 else power // k
    return total


@cache
def scaled_pi(bits: int = _PI_BITS) -> int:
    """⌊π · 2^bits⌋, by Machin's formula π/4 = 4·arctan(1/5) − arctan(1/239) (Machin, 1706)."""
    guard = 64
    total = 16 * _scaled_arctan_inverse(5, bits + guard)
    total -= 4 * _scaled_arctan_inverse(239, bits + guard)
    return total >> guard


def _rounded_quotient(numerator: int, denominator: int) -> int:
    """The integer nearest to numerator/denominator (half up), denominator > 0."""
    return (2 * numerator + denominator) // (2 * denominator)


def _signed64(value: int) -> int:
    """The representative of value mod 2⁶⁴ in [−2⁶³, 2⁶³)."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _per_position(frequency: float, unit: float) -> Fraction:
    """Radians per position, exactly."""
    check_number("unit", unit, above=0)
    try:
        return Fraction(check_number("frequency", frequency)) * Fraction(unit)
    except ValueError as error:
        raise ValueError(f"{error}; a pair that shall not turn has frequency 0.0") from error


def _bits_for(value: Fraction) -> int:
    """Bits of π that reduce ``value`` modulo a turn; in coarse steps, so that few π are made."""
    whole = abs(value).__floor__().bit_length()
    return _PI_BITS * (1 + (whole + 192) // _PI_BITS)


def step(frequency: float, unit: float = 1.0) -> int:
    """The int64 step of ``frequency`` radians per coordinate, one position being ``unit`` of it.

    Raises:
        ValueError: frequency or unit is not finite.
    """
    exact = _per_position(frequency, unit)
    bits = _bits_for(exact * 2**64)
    turns = _rounded_quotient(
        exact.numerator << (64 + bits), exact.denominator * 2 * scaled_pi(bits)
    )
    return _signed64(turns)


def exact_angle(position: int, frequency: float, unit: float = 1.0) -> float:
    """position · frequency · unit reduced to (−π, π], correct to about one float64 rounding.

    Independent of :func:`step` (no 64-bit quantisation): the oracle of reference loops and checks.

    Raises:
        ValueError: frequency or unit is not finite.
    """
    exact = _per_position(frequency, unit) * check_int("position", position)
    bits = _bits_for(exact)
    turn = 2 * scaled_pi(bits)
    reduced = (exact.numerator << bits) // exact.denominator % turn
    if reduced > turn // 2:
        reduced -= turn
    return float(Fraction(reduced, 1 << bits))
