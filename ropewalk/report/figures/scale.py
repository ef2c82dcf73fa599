"""Axes: where they end, where their ticks are, and how numbers are written at them."""

from __future__ import annotations

import math
from collections.abc import Sequence

DIGITS = 3
"""Of the ends of an axis, so that the last bits of a number do not move it."""


def ends(values: Sequence[float], powers: bool) -> tuple[float, float]:
    """The range of y: rounded outwards, never empty, and 0 in it where it is near."""
    low, high = min(values), max(values)
    if powers:
        return math.floor(low + 1e-6), max(math.ceil(high - 1e-6), math.floor(low + 1e-6) + 1)
    low, high = (float(f"{v:.{DIGITS}g}") for v in (low, high))
    if 0 < low < high / 2:
        low = 0.0
    if low / 2 < high < 0:
        high = 0.0
    if high - low < 1e-3 * max(abs(low), abs(high), 1e-300):
        middle, half = (low + high) / 2, max(abs(low), abs(high)) / 2 or 1.0
        low, high = middle - half, middle + half
    return low, high


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """About four round numbers in a range; its only number if it has one."""
    if high <= low:
        return [low]
    rough = (high - low) / 4
    decade = 10.0 ** math.floor(math.log10(rough) + 1e-9)
    step = next(decade * m for m in (1, 2, 5, 10) if decade * m >= rough * (1 - 1e-9))
    step = max(round(step), 1) if whole else step
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [n * step for n in range(first, last + 1)]


def number(value: float) -> str:
    """Three digits; grouped and whole from a thousand on."""
    text = f"{value:.{DIGITS}g}" if abs(value) < 1000 else f"{value:,.0f}"
    return ("0" if float(text.replace(",", "")) == 0 else text).replace("-", "−")


def power(exponent: int) -> str:
    """A power of ten, written out while it is short."""
    return f"{10**exponent:,}" if 0 <= exponent < 7 else f"1e{exponent}".replace("-", "−")
