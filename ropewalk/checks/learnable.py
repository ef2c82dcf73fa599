"""learnable: a model soon learns to attend to the token k places back.

The error is the median number of steps until a small model is right at 99 % of the places, on the
task ``back`` of :mod:`ropewalk.lab`, in a stored record (``runs/learnable.py``). It holds if the
median model got there at all within the recorded number of steps. Null without a record of the
encoding.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from ropewalk import records
from ropewalk.checks.measurement import Measurement, at_most, judge, measure, not_applicable
from ropewalk.core import Encoding

RECORD = "learnable"


@measure(None)
def learnable_error(encoding: Encoding, *, name: str | None = None) -> Measurement:
    """The median number of steps to 99 %; null without a record.

    Args:
        encoding: any.
        name: under which it ran; nothing is recorded of an encoding without a name.
    """
    try:
        record = None if name is None else records.load(RECORD)
        found = None if record is None else record["encodings"].get(name)
        if record is None or found is None:
            return not_applicable("no recorded training of this encoding and configuration")
        return _judged(record, found["steps"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return not_applicable(f"the record of {RECORD} cannot be read: {error!r}")


def _judged(record: Mapping[str, Any], steps: list[int | None]) -> Measurement:
    """Runs that never got there count as infinitely long."""
    reached = [math.inf if each is None else float(each) for each in steps]
    median, most = statistics.median_high(reached), float(record["most"])
    question = f"{record['question']}; {len(steps)} seeds, scored every {record['every']} steps"
    never = sum(each is None for each in steps)
    reason = (
        f"recorded: {question}"
        if math.isfinite(median)
        else f"{never} of {len(steps)} runs did not get there in {most:.0f} steps; {question}"
    )
    figures = {"least": min(reached), "most": max(reached), "never": float(never)}
    return at_most(median, most, {k: v for k, v in figures.items() if math.isfinite(v)}, reason)


def assert_learnable(encoding: Encoding, *, name: str | None = None) -> Measurement:
    """Raise AssertionError unless the recorded models learned it in time."""
    return judge("learnable", encoding, learnable_error(encoding, name=name))
