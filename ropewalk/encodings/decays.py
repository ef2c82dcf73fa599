r"""Functions of distance as few decays, a line and a constant: the shortest sum within an error.

.. math:: f_h(d) \approx c_h + s_h d + \sum_{n=1}^{r} w_{hn}\, e^{-λ_n d}, \qquad d \ge d_0

A decay of d = i − j is a decay of i times a decay of j, so each term is one channel of attention,
and c none. All functions share the rates λ, spread geometrically from a fraction of 1/length to a
multiple of 1/d₀; weights are least squares. Smooth functions of ln d need some ten rates for three
digits, few more for a longer text; a jump at a far distance needs as many as it has tokens.

Source: that such sums converge geometrically for smooth decreasing functions is shown in On
Approximation of Functions by Exponential Sums (Beylkin, Monzón, 2005). How the rates are found
here is a search of our own, and nothing rests on it: the error is measured at every distance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

NEAREST = 1024
"""Largest first distance that is tried."""
LONGEST = 64
"""Terms that are tried to say how many would be needed."""
SLOWEST = (0.1, 0.3, 1.0, 3.0)
"""Least rates, per length."""
FASTEST = (0.5, 1.0, 2.0, 4.0)
"""Largest rates, per first distance."""
DIGITS = 2.0**-22
"""What channels of 24 bits, multiplied and added, are off by, of the size of the terms."""


@dataclass(frozen=True)
class Decays:
    """A sum of decays for each of several functions; float64.

    Args:
        near: the first distance for which it holds.
        rates: λ ``[terms]``, per token.
        weights: ``[functions, terms]``.
        slope, constant: ``[functions]``.
        linear: whether any slope is used.
        error: ``[functions]``, at the worst distance, with what 24 bits round.
    """

    near: int
    rates: Tensor
    weights: Tensor
    slope: Tensor
    constant: Tensor
    linear: bool
    error: Tensor

    @property
    def channels(self) -> int:
        """Terms that take a channel each."""
        return len(self.rates) + self.linear

    def at(self, distances: Tensor) -> Tensor:
        """``[functions, distances]``."""
        d = distances.to(torch.float64)
        line = self.constant[:, None] + self.slope[:, None] * d
        return line + self.weights @ torch.exp(-self.rates[:, None] * d)


def shortest(lines: Tensor, error: float, most: int) -> Decays:
    """The sum of fewest exact near distances, and then of fewest channels, that is good enough.

    Args:
        lines: the functions at distances 0, 1, …: float64 ``[functions, length]``, on the CPU.
        error: the largest that is allowed, for each function and distance.
        most: channels.

    Raises:
        ValueError: there is none; the message says what there is.
    """
    length = lines.shape[-1]
    found, least = _nearest(lines, error, range(most + 1))
    if found is not None:
        return found
    more = range(most + 1, max(most, LONGEST) + 1)
    found, least = _nearest(lines, error, more) if more else (None, least)
    if found is not None:
        raise ValueError(
            f"error={error:g} over {length} distances needs {found.channels} channels, and "
            f"most={most}; allow as many, a larger error or a smaller length"
        )
    size = lines.abs().amax().item()
    raise ValueError(
        f"error={error:g} over {length} distances is out of reach of {max(most, LONGEST)} channels,"
        f" which come to {least:.2g} for values up to {size:.3g} (float32 holds those to "
        f"{size * 2.0**-24:.1g}); allow a larger error, a smaller length, or use the encoding as "
        "it is"
    )


def _nearest(lines: Tensor, error: float, counts: range) -> tuple[Decays | None, float]:
    """The first sum that is good enough, and the least error that was seen.

    A first distance is searched through only if some number of channels, or their half, will do.
    """
    least = math.inf
    probes = sorted({counts[0], counts[len(counts) // 2], counts[-1]})
    for start in range(NEAREST.bit_length()):
        near = 1 << start
        if near >= lines.shape[-1]:
            break
        found, worst = _fewest(lines, near, error, probes)
        least = min(least, worst)
        if found is not None:
            return _fewest(lines, near, error, counts)[0], least
    return None, least


def _fewest(
    lines: Tensor, near: int, error: float, counts: Iterable[int]
) -> tuple[Decays | None, float]:
    """The first sum that is good enough at every distance, and the least error that was seen."""
    sample = _sample(near, lines.shape[-1])
    least = math.inf
    for channels in counts:
        for linear in (False, True)[: channels + 1]:
            found = _best(lines, near, sample, channels - linear, linear)
            if found.error.amax().item() <= error:
                found = _measured(found, lines)
            worst = found.error.amax().item()
            least = min(least, worst)
            if worst <= error:
                return found, least
    return None, least


def _best(lines: Tensor, near: int, sample: Tensor, terms: int, linear: bool) -> Decays:
    """The best at some distances of all ranges of rates."""
    length = lines.shape[-1]
    few = lines[:, sample]
    ranges = [(a / length, b / near) for a in SLOWEST for b in FASTEST]
    tried = (_solved(few, near, sample, _rates(*ends, terms), linear) for ends in ranges)
    return min(tried, key=lambda one: one.error.amax().item())


def _rates(slow: float, fast: float, terms: int) -> Tensor:
    return torch.logspace(math.log2(slow), math.log2(fast), terms, 2.0, dtype=torch.float64)


def _solved(few: Tensor, near: int, sample: Tensor, rates: Tensor, linear: bool) -> Decays:
    """Least squares at the sampled distances."""
    d = sample.to(torch.float64)
    unit = d[-1]
    columns = [torch.ones_like(d)[:, None], torch.exp(-d[:, None] * rates)]
    if linear:
        columns.append((d / unit)[:, None])
    found = torch.linalg.lstsq(torch.cat(columns, -1), few.T, rcond=1e-11, driver="gelsd")
    constant, weights = found.solution[0], found.solution[1 : 1 + len(rates)].T
    slope = found.solution[-1] / unit if linear else torch.zeros_like(constant)
    sums = Decays(near, rates, weights, slope, constant, linear, constant)
    return _judged(sums, few, sample)


def _measured(sums: Decays, lines: Tensor) -> Decays:
    """With the error at every distance from the first on."""
    every = torch.arange(sums.near, lines.shape[-1])
    return _judged(sums, lines[:, sums.near :], every)


def _judged(sums: Decays, lines: Tensor, distances: Tensor) -> Decays:
    away = (sums.at(distances) - lines).abs().amax(-1)
    size = sums.weights.abs() @ torch.exp(-sums.rates * sums.near)
    error = away + size * DIGITS
    return Decays(
        sums.near, sums.rates, sums.weights, sums.slope, sums.constant, sums.linear, error
    )


def _sample(near: int, length: int) -> Tensor:
    """The first distances, and others up to the last ever farther apart."""
    first = torch.arange(near, min(near + 64, length))
    far = torch.logspace(math.log2(near), math.log2(length - 1), 300, 2.0, dtype=torch.float64)
    return torch.cat((first, far.round().long().clamp(near, length - 1))).unique()
