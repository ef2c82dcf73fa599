r"""What several seeds say: the median, the range, and whether two encodings can be told apart.

The interval is the range of the seeds, lowest to highest: of three values a bootstrap of the median
can say no more. Two encodings count as different where their ranges do not overlap. Among n + n
values of one and the same distribution that happens by chance with probability

.. math:: 2 \Big/ \binom{2n}{n}

which is 1 in 10 for three seeds and 1 in 126 for five: with three, trust the gap, not the verdict.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

INTERVAL = "range of the seeds, lowest to highest"
NOT_DISTINGUISHABLE = "not distinguishable"


def summary(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, low and high.

    Raises:
        ValueError: no values, or one that is not finite.
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"values={list(values)!r} must be finite numbers, at least one")
    return statistics.median(values), min(values), max(values)


def compare(a: Sequence[float], b: Sequence[float]) -> str:
    """``"lower"`` or ``"higher"``, a against b, or that their intervals overlap."""
    (_, low_a, high_a), (_, low_b, high_b) = summary(a), summary(b)
    if high_a < low_b:
        return "lower"
    return "higher" if low_a > high_b else NOT_DISTINGUISHABLE


def chance(seeds: int) -> float:
    """Probability that the intervals of two equal encodings do not overlap."""
    return 2 / math.comb(2 * seeds, seeds)


def curves(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One curve per encoding from records of trials, in the order in which they first occur.

    Returns:
        ``{"encoding", "median", "low", "high", "values"}``, each a list over the lengths of the
        trials; ``values[i]`` is a list over seeds, sorted by seed. The number of a trial at a
        length is that of its last run of positions.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(record["config"]["encoding"], []).append(record)
    result = []
    for encoding, own in found.items():
        own = sorted(own, key=lambda record: record["config"]["seed"])
        lengths = own[0]["config"]["lengths"]
        values = [[record["bits"][str(n)][-1] for record in own] for n in lengths]
        median, low, high = (list(side) for side in zip(*map(summary, values), strict=True))
        result.append(
            {"encoding": encoding, "median": median, "low": low, "high": high, "values": values}
        )
    return result


def comparisons(found: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Each pair of curves at each length: ``{"length", "a", "b", "verdict"}``, a against b."""
    return [
        {
            "length": n,
            "a": a["encoding"],
            "b": b["encoding"],
            "verdict": compare(a["values"][i], b["values"][i]),
        }
        for i, n in enumerate(lengths)
        for a, b in combinations(found, 2)
    ]
