"""Checks of numeric arguments: each returns the value, or names argument, value and remedy."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable

WIDEST = 1 << 16
"""No head is wider; a larger number is a mistake, and its frequencies would take for ever."""

LARGEST = 1e18
"""Of what is stored in float32: its square does not overflow there."""

FARTHEST = 1 << 62
"""Of positions and lengths in int64: the sum of two does not overflow."""

_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = _shorten.maxlong = 60


def shown(value: object) -> str:
    """``repr`` for a message, with the middle of a long one left out."""
    try:
        return _shorten.repr(value)
    except ValueError:  # more digits than Python writes
        return f"an int of {value.bit_length()} bits" if isinstance(value, int) else "…"


def check_number(
    name: str,
    value: float,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
) -> float:
    """``value`` as a finite float within its bounds.

    Raises:
        TypeError: not an int or float.
        ValueError: not finite, or out of bound.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}={shown(value)} must be a number, got {type(value).__name__}")
    bound = "" if above is None else f" and above {above:g}"
    bound = bound if at_least is None else f" and at least {at_least:g}"
    bound += "" if at_most is None else f" and at most {at_most:g}"
    try:
        number = float(value)
    except OverflowError:  # an int beyond every float
        number = math.inf
    if (
        not math.isfinite(number)
        or (above is not None and not number > above)
        or (at_least is not None and not number >= at_least)
        or (at_most is not None and not number <= at_most)
    ):
        raise ValueError(f"{name}={number!r} must be finite{bound}")
    return number


def check_int(
    name: str, value: int, at_least: int | None = None, at_most: int | None = None
) -> int:
    """``value`` if it is an int, and within its bounds.

    Raises:
        TypeError: not an int.
        ValueError: too small or too large.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={shown(value)} must be an int, got {type(value).__name__}")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name}={shown(value)} must be at least {at_least}")
    if at_most is not None and value > at_most:
        raise ValueError(f"{name}={shown(value)} must be at most {at_most}")
    return value


def check_flag(name: str, value: bool) -> bool:
    """``value`` if it is a bool.

    Raises:
        TypeError: anything else, 0 and 1 too.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name}={shown(value)} must be True or False")
    return value


def check_option(name: str, value: object, options: Iterable[str]) -> None:
    """Refuse what is none of the words ``options``, of whatever type it is.

    Raises:
        ValueError: with the words.
    """
    words = tuple(options)
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name}={shown(value)} is unknown; use one of {words}")


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
        raise ValueError(f"{name}={shown(value)} must be at most {WIDEST}")
    if value < at_least or value % 2:
        near = max(at_least, value + value % 2)
        raise ValueError(
            f"{name}={shown(value)} must be even and at least {at_least}, since lanes turn in "
            f"pairs; use {near}"
        )
    return value
