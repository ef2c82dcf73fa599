"""What a check returns, and how a measure becomes a judgement."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Concatenate, Literal, ParamSpec

import torch

from ropewalk.checks.content import one_thread
from ropewalk.core import Encoding

P = ParamSpec("P")


@dataclass(frozen=True)
class Measurement:
    """One property of one encoding, measured.

    Args:
        error: the property's estimate; None if it does not apply or could not be measured.
        tolerance: the bound on the error; None if it does not apply.
        holds: the verdict; None if the property does not apply.
        reason: one line on why it does not apply, could not be measured, or was measured on less
            than usual.
        figures: further numbers by name.
    """

    error: float | None
    tolerance: float | None
    holds: bool | None
    reason: str | None = None
    figures: dict[str, float] = field(default_factory=dict)


class Unusable(Exception):
    """An encoding gave something that is no code: a wrong shape, nan, inf."""


def at_most(
    error: float,
    tolerance: float,
    figures: Mapping[str, float] | None = None,
    reason: str | None = None,
) -> Measurement:
    """Holds if error ≤ tolerance; an infinite error is told by its reason."""
    numbers = {name: float(value) + 0.0 for name, value in (figures or {}).items()}
    if not math.isfinite(error):
        return Measurement(None, tolerance, False, reason or "the error is not finite", numbers)
    return Measurement(float(error), tolerance, error <= tolerance, reason, numbers)


def not_applicable(reason: str, figures: Mapping[str, float] | None = None) -> Measurement:
    """The property says nothing about this encoding."""
    return Measurement(None, None, None, reason, dict(figures or {}))


def one_line(error: BaseException) -> str:
    """``ValueError: its message``, in one line of at most 200 characters."""
    text = " ".join(str(error).split())
    line = text if isinstance(error, Unusable) else f"{type(error).__name__}: {text}".rstrip(": ")
    return line if len(line) <= 200 else line[:199] + "…"


def measure(
    tolerance: float | None,
) -> Callable[
    [Callable[Concatenate[Encoding, P], Measurement]],
    Callable[Concatenate[Encoding, P], Measurement],
]:
    """Wrap a measuring function: no gradients, one thread, and failing is a verdict, no crash.

    Raises:
        TypeError: what is measured is not an :class:`ropewalk.Encoding`.
    """

    def wrap(
        function: Callable[Concatenate[Encoding, P], Measurement],
    ) -> Callable[Concatenate[Encoding, P], Measurement]:
        @functools.wraps(function)
        def measured(encoding: Encoding, *args: P.args, **kwargs: P.kwargs) -> Measurement:
            if not isinstance(encoding, Encoding):
                raise TypeError(
                    f"encoding must be an Encoding, got {type(encoding).__name__}; "
                    "ropewalk.make(name, …) builds one, and check(name) takes a name"
                )
            try:
                with torch.no_grad(), one_thread():
                    return function(encoding, *args, **kwargs)
            except Exception as error:
                return Measurement(None, tolerance, False, one_line(error))

        return measured

    return wrap


def label(encoding: Encoding) -> str:
    """``Sinusoidal(dim=64, …)``, or the bare class name."""
    details = encoding.extra_repr()
    return f"{type(encoding).__name__}({details})" if details else type(encoding).__name__


def judge(
    name: str,
    encoding: Encoding,
    measurement: Measurement,
    sense: Literal["at most", "at least"] = "at most",
) -> Measurement:
    """The measurement, if its property holds.

    Raises:
        AssertionError: it does not hold, or does not apply; the message names encoding, property,
            error and tolerance.
    """
    if measurement.holds:
        return measurement
    why = f": {measurement.reason}" if measurement.reason else ""
    if measurement.holds is None:
        raise AssertionError(f"{label(encoding)}: {name!r} does not apply{why}")
    size = "none" if measurement.error is None else f"{measurement.error:.3g}"
    raise AssertionError(
        f"{label(encoding)} is not {name!r}: error {size}, tolerance {sense} "
        f"{measurement.tolerance}{why}"
    )
