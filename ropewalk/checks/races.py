"""Curves of a stored race, which some properties read instead of training a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Curve:
    """One encoding's loss in a race: per length the median and the extremes over seeds."""

    train_length: int
    seeds: int
    unit: str
    median: Mapping[int, float]
    low: Mapping[int, float]
    high: Mapping[int, float]


def curve(record: Mapping[str, Any], name: str) -> Curve | None:
    """The curve of the encoding ``name`` in a race record, or None if it did not run.

    Where the record has null, a trial diverged: the number is the worst there is, an infinity.

    Raises:
        ValueError: the record is not ``{"train_length", "lengths", "unit", "seeds",
            "curves": [{"encoding", "median", "low", "high"}]}``.
    """
    try:
        found = next((c for c in record["curves"] if c["encoding"] == name), None)
        if found is None:
            return None
        lengths = [int(n) for n in record["lengths"]]
        worst = -math.inf if record.get("better") == "higher" else math.inf
        losses = {
            kind: dict(zip(lengths, (_score(v, worst) for v in found[kind]), strict=True))
            for kind in ("median", "low", "high")
        }
        return Curve(int(record["train_length"]), int(record["seeds"]), record["unit"], **losses)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no race record: {error!r}") from error


def _score(value: float | None, worst: float) -> float:
    return worst if value is None else float(value)
