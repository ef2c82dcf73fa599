"""What several passages of text say together.

Texts differ far more than methods do, so methods are compared passage by passage.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n − 1; 0 for one value) over passages, and the values."""

    mean: float
    sd: float
    values: tuple[float, ...]

    def as_dict(self) -> dict[str, object]:
        """As JSON has it."""
        return {"mean": self.mean, "sd": self.sd, "values": list(self.values)}


def spread(values: Sequence[float]) -> Spread:
    """The spread of one value a passage.

    Raises:
        ValueError: there is none.
    """
    if not values:
        raise ValueError("values is empty; measure at least one passage")
    sd = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(statistics.fmean(values), sd, tuple(values))


def beyond(differences: Sequence[float]) -> bool:
    """Whether paired differences exceed their spread over passages.

    They do if there are at least two, all have one sign, and the mean is larger than their standard
    deviation.
    """
    if len(differences) < 2:
        return False
    found = spread(differences)
    return (min(differences) > 0 or max(differences) < 0) and abs(found.mean) > found.sd


def apart(a: Sequence[float], b: Sequence[float]) -> Spread:
    """The spread of a − b, passage by passage."""
    return spread([x - y for x, y in zip(a, b, strict=True)])
