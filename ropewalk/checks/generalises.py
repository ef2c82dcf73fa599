"""generalises: a model trained at length L is no worse at 4L.

The error is the median loss at 4L − the median loss at L in a stored race (the record states its
task, unit and seeds; :mod:`ropewalk.checks.races`). It holds up to 0.05 bits, about the spread
between seeds of such a race. Null without a record of the encoding.
"""

from __future__ import annotations

from ropewalk import records
from ropewalk.checks.measurement import Measurement, at_most, judge, measure, not_applicable
from ropewalk.checks.races import Curve, curve
from ropewalk.core import Encoding

TOLERANCE = 0.05
TIMES = 4
RECORDS = ("race_walk", "claim_06")
"""Where an encoding is looked for, in this order."""


@measure(TOLERANCE)
def generalises_error(encoding: Encoding, *, name: str | None = None) -> Measurement:
    """The median loss at 4L − at L; null without a record.

    Args:
        encoding: any.
        name: under which the race ran it; nothing is recorded of an encoding without a name.
    """
    try:
        found = None if name is None else _found(name)
    except ValueError as error:
        return not_applicable(f"the recorded race cannot be read: {error}")
    if found is None:
        return not_applicable("no recorded race of this encoding and configuration")
    trained, longer = found.train_length, TIMES * found.train_length
    if trained not in found.median or longer not in found.median:
        return not_applicable(f"the recorded race was not read at {trained} and {longer}")
    figures = {
        f"{kind}_at_{length}": losses[length]
        for length in (trained, longer)
        for kind, losses in (("median", found.median), ("low", found.low), ("high", found.high))
    }
    error = found.median[longer] - found.median[trained]
    reason = (
        f"recorded race, trained at {trained}, {found.seeds} seeds, {found.unit}; "
        f"holds up to {TOLERANCE}"
    )
    return at_most(error, TOLERANCE, figures, reason)


def _found(name: str) -> Curve | None:
    """The curve of an encoding in the first record that has one."""
    read = (record for record in map(records.load, RECORDS) if record is not None)
    return next((found for record in read if (found := curve(record, name)) is not None), None)


def assert_generalises(encoding: Encoding, *, name: str | None = None) -> Measurement:
    """Raise AssertionError unless the recorded loss at four times the length is no worse."""
    return judge("generalises", encoding, generalises_error(encoding, name=name))
