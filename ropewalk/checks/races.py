"""Curves of a stored race, which some properties read instead of training a model."""

from __future__ import annotations

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

    Raises:
        ValueError: the record is not ``{"train_length", "lengths", "unit", "seeds",
            "curves": [{"encoding", "median", "low", "high"}]}``.
    """
    try:
        found = next((c for c in record["curves"] if c["encoding"] == name), None)
        if found is None:
            return None
        lengths = [int(n) for n in record["lengths"]]
        losses = {
            kind: dict(zip(lengths, map(float, found[kind]), strict=True))
            for kind in ("median", "low", "high")
        }
        return Curve(int(record["train_length"]), int(record["seeds"]), record["unit"], **losses)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no race record: {error!r}") from error
