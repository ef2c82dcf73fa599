"""What several passages of text say together.

Texts differ far more than methods do, so methods are compared passage by passage.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""Two-sided 95 % points of Student's t with 1, 2, … degrees of freedom; for more, the last."""


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

    They do if Student's 95 % interval of their mean, mean ± t · sd / √n, does not hold 0: of three
    passages the mean must be 2.5 times their standard deviation. One passage has no spread, so
    nothing is beyond it.
    """
    n = len(differences)
    if n < 2:
        return False
    found = spread(differences)
    return abs(found.mean) > STUDENT[min(n - 1, len(STUDENT)) - 1] * found.sd / math.sqrt(n)


def apart(a: Sequence[float], b: Sequence[float]) -> Spread:
    """The spread of a − b, passage by passage."""
    return spread([x - y for x, y in zip(a, b, strict=True)])
