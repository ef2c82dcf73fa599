"""Frequencies drawn from a Gaussian, the same ones on every machine."""

from __future__ import annotations

import random
from statistics import NormalDist

from ropewalk.spectra.arguments import check_int, check_number

_GRAIN = 2.0**-32
"""Numbers are multiples of this, so that the last bit of a machine's logarithm does not show."""


def gaussian_matrix(
    rows: int, columns: int, std: float = 1.0, *, seed: int = 0
) -> tuple[tuple[float, ...], ...]:
    """Numbers of N(0, std²), ``[rows][columns]``, that follow from the seed alone.

    By the inverse of the distribution function at 52 bits of Python's Mersenne twister, in
    multiples of std · 2⁻³².

    Raises:
        TypeError, ValueError: a value is out of range.
    """
    check_int("seed", seed)
    scale = check_number("std", std, above=0)
    twister, normal = random.Random(seed), NormalDist()

    def number() -> float:
        share = (twister.getrandbits(52) + 0.5) / 2.0**52  # never 0, never 1
        return round(normal.inv_cdf(share) / _GRAIN) * _GRAIN * scale

    return tuple(
        tuple(number() for _ in range(check_int("columns", columns, at_least=1)))
        for _ in range(check_int("rows", rows, at_least=1))
    )
