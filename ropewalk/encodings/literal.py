"""Literal float64 loops over one head vector: the oracles of rotary encodings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ropewalk.spectra import Spectrum, exact_angle


def lane_pairs(spectrum: Spectrum) -> list[tuple[int, int]]:
    """Both lanes of each pair."""
    first, second = spectrum.lanes
    lanes = range(spectrum.head_dim)
    return list(zip(lanes[first], lanes[second], strict=True))


def angles(spectrum: Spectrum, position: int | Sequence[int], head: int = 0) -> list[float]:
    """The angle of each pair at ``position``, exactly reduced, in one head of the spectrum."""
    matrix = spectrum.matrices[0 if spectrum.heads is None else head]
    where = (position,) if isinstance(position, int) else tuple(position)
    return [
        math.fsum(exact_angle(p, f, spectrum.unit) for p, f in zip(where, column, strict=True))
        for column in zip(*matrix, strict=True)
    ]


def turned(
    x: Sequence[float], spectrum: Spectrum, turns: Iterable[tuple[float, float]]
) -> list[float]:
    """x with each pair turned by its (cos, sin)."""
    result = [float(value) for value in x]
    for (a, b), (cos, sin) in zip(lane_pairs(spectrum), turns, strict=True):
        result[a], result[b] = x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos
    return result
