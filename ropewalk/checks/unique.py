r"""unique: no two positions share a code.

.. math:: \min_{p \ne p' < 8192} \|c(p) - c(p')\| \;/\; \mathrm{RMS}\,\|c\| \;\ge\; 10^{-6}

c is the code of the position (:func:`ropewalk.checks.signature.signatures`); for biases, of the
causal offset. With several axes: along each axis, and on a grid. The error is this share, so *more*
is better here. Figures: the nearest distance itself, and how many of the positions' codes equal an
earlier one after rounding to bfloat16 and float16.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks.measurement import Measurement, judge, measure, not_applicable
from ropewalk.checks.nearest import SAME, closest, collisions, rms
from ropewalk.checks.reach import reach
from ropewalk.checks.signature import signatures
from ropewalk.core import Contextual, Encoding
from ropewalk.positions import grid

TOLERANCE = SAME
WINDOW = 8192
"""Positions below this must be told apart."""

_LOW = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@measure(TOLERANCE)
def unique_error(encoding: Encoding) -> Measurement:
    """The smallest distance between two codes ÷ the RMS code; holds from 1e-6 up."""
    far = reach(encoding)
    count = min(WINDOW, far.count)
    if isinstance(encoding, Contextual):
        count = WINDOW // 4
    if count < 2:
        return not_applicable("one position has nothing to be told from")
    share, nearest = float("inf"), float("inf")
    merged = dict.fromkeys(_LOW, 0)
    for positions in _sets(count, encoding.axes):
        found = signatures(encoding, positions, count)
        size, distance = rms(found), closest(found)
        share = min(share, distance / size if size else 0.0)
        nearest = min(nearest, distance)
        for name, dtype in _LOW.items():
            merged[name] = max(merged[name], collisions(found, dtype))
    figures = {"nearest_distance": nearest, "positions": float(count)}
    figures |= {f"collisions_{name}": float(number) for name, number in merged.items()}
    reason = None if count == WINDOW else f"positions below {count}"
    return Measurement(share, TOLERANCE, share >= TOLERANCE, reason, figures)


def _sets(count: int, axes: int) -> list[Tensor]:
    """The positions that must differ among each other."""
    line = torch.arange(count)
    if axes == 1:
        return [line]
    lines = [line[:, None] * row for row in torch.eye(axes, dtype=torch.int64)]
    return [*lines, grid(*[int(count ** (1 / axes))] * axes)]


def assert_unique(encoding: Encoding) -> Measurement:
    """Raise AssertionError unless no two positions share a code."""
    return judge("unique", encoding, unique_error(encoding), "at least")
