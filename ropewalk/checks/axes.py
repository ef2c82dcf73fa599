r"""axes: positions are vectors, and the score depends on their difference.

:func:`ropewalk.checks.relative.change` along every axis alone and along all jointly, tolerance
1e-9; and no two places of a 32 × 32 grid (in each plane of two axes) share a code within 1e-6 of
the RMS code. Collisions are counted in the figure ``collisions`` and allow none: one frequency
shared by x and y cannot tell (x, y) from (x + 1, y − 1). Null for one axis.
"""

from __future__ import annotations

import itertools

import torch

from ropewalk.checks.measurement import Measurement, at_most, judge, measure, not_applicable
from ropewalk.checks.nearest import SAME, merged, rms
from ropewalk.checks.reach import reach
from ropewalk.checks.relative import TOKENS, change
from ropewalk.checks.shifts import directions, fitting
from ropewalk.checks.signature import signatures
from ropewalk.core import Contextual, Encoding
from ropewalk.positions import grid

TOLERANCE = 1e-9
SIDE = 32


@measure(TOLERANCE)
def axes_error(encoding: Encoding) -> Measurement:
    """The largest score change along any axis or all; does not hold if places collide."""
    if encoding.axes == 1:
        return not_applicable("one axis")
    if isinstance(encoding, Contextual):
        return not_applicable("a contextual bias is measured along its sequence")
    far = reach(encoding)
    shifts = fitting(far.count, TOKENS)
    if not shifts or far.count < SIDE:
        return not_applicable(f"positions end at {far.count - 1}: no room to shift")
    figures = {
        name: max(change(encoding, direction, by, far.count) for by in shifts)
        for name, direction in directions(encoding.axes).items()
    }
    collisions = _collisions(encoding)
    found = at_most(max(figures.values()), TOLERANCE, {**figures, "collisions": collisions})
    if not collisions:
        return found
    reason = f"{collisions} of {SIDE * SIDE} places of a grid share their code with another"
    return Measurement(found.error, TOLERANCE, False, reason, found.figures)


def _collisions(encoding: Encoding) -> int:
    """Places of a grid whose code equals an earlier one, in the worst plane of two axes."""
    worst = 0
    for plane in itertools.combinations(range(encoding.axes), 2):
        places = torch.zeros(SIDE * SIDE, encoding.axes, dtype=torch.int64)
        places[:, list(plane)] = grid(SIDE, SIDE)
        codes = signatures(encoding, places, SIDE)
        worst = max(worst, merged(codes, SAME * rms(codes)))
    return worst


def assert_axes(encoding: Encoding) -> Measurement:
    """Raise AssertionError unless scores depend on vector differences and places are distinct."""
    return judge("axes", encoding, axes_error(encoding))
