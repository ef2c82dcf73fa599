"""Checks of numeric arguments: each returns the value, or names argument, value and remedy."""

from __future__ import annotations

import math

WIDEST = 1 << 16
"""No head is wider; a larger number is a mistake, and its frequencies would take for ever."""


def check_number(
    name: str, value: float, *, above: float | None = None, at_least: float | None = None
) -> float:
    """``value`` as a finite float within its bound.

    Raises:
        TypeError: not an int or float.
        ValueError: not finite, or out of bound.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r} must be a number, got {type(value).__name__}")
    bound = "" if above is None else f" and above {above:g}"
    bound = bound if at_least is None else f" and at least {at_least:g}"
    try:
        number = float(value)
    except OverflowError:  # an int beyond every float
        number = math.inf
    if (
        not math.isfinite(number)
        or (above is not None and not number > above)
        or (at_least is not None and not number >= at_least)
    ):
        raise ValueError(f"{name}={number!r} must be finite{bound}")
    return number


def check_int(name: str, value: int, at_least: int | None = None) -> int:
    """``value`` if it is an int, and at least ``at_least``.

    Raises:
        TypeError: not an int.
        ValueError: too small.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} must be an int, got {type(value).__name__}")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name}={value} must be at least {at_least}")
    return value


def check_base(base: float) -> float:
    """``base`` as a float.

    Raises:
        TypeError: not a number.
        ValueError: not finite and above 0.
    """
    try:
        return check_number("base", base, above=0)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}, such as 10000.0") from None


def check_even(name: str, value: int, at_least: int = 2) -> int:
    """``value`` if it is an even int ≥ at_least.

    Raises:
        TypeError: not an int.
        ValueError: odd or too small.
    """
    check_int(name, value)
    if value > WIDEST:
        raise ValueError(f"{name}={value} must be at most {WIDEST}")
    if value < at_least or value % 2:
        near = max(at_least, value + value % 2)
        raise ValueError(
            f"{name}={value} must be even and at least {at_least}, since lanes turn in pairs; "
            f"use {near}"
        )
    return value
