r"""What several seeds say: a median with its interval, and whether two encodings are apart.

**Interval.** The 95 % percentile interval of the bootstrap of the median. It is exact: of the nⁿ
ways to draw n of n seeds with replacement, those whose m-th value (m = n/2) is the i-th smallest
and whose next is the j-th, i < j, number

.. math:: \binom{n}{m} \bigl(i^m - (i-1)^m\bigr) \bigl((n-j+1)^m - (n-j)^m\bigr)

for even n, and so the odd n are by one binomial sum; no random numbers are drawn, for few seeds or
many. Up to five seeds the interval is the range of the seeds: so few can say no more.

**Apart.** Two encodings are told apart by the first of two rules that applies,

1. *intervals*: each has three seeds or more, and the intervals do not overlap;
2. *pairs*: the interval of the differences, seed by seed, does not hold 0;

and only if equal encodings would come out so at most once in ten times
(:func:`chance_of_gap`, :func:`chance_of_split`), which takes three seeds for the first rule and
five for the second. Anything else is "not distinguishable".

A trial that diverged scores worst: +∞ where lower is better, −∞ where higher is.

Source: B. Efron, R. Tibshirani, *An Introduction to the Bootstrap*, 1993, ch. 13; the chances
count orders of exchangeable values, and signs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

INTERVAL = "95 % percentile bootstrap of the median over seeds, exact"
NOT_DISTINGUISHABLE = "not distinguishable"
BY_INTERVALS = "the intervals do not overlap"
BY_PAIRS = "the interval of the paired differences does not hold 0"

TAIL = Fraction(1, 40)
"""Of the bootstrap's medians, beyond each end of an interval."""
MOST_CHANCE = Fraction(1, 10)
"""At which two equal encodings may be called apart."""
LEAST_SEEDS = 3
"""Of each encoding, for its interval to be held against another."""

BySeed = Mapping[int, float]
"""Seed → score; infinite where the trial diverged."""


class Interval(NamedTuple):
    """A median between the ends of its interval, low ≤ median ≤ high."""

    median: float
    low: float
    high: float


# --- the interval --------------------------------------------------------------------------------


def interval(values: Iterable[float]) -> Interval:
    """The median of ``values`` and its 95 % bootstrap interval; values may be infinite.

    Raises:
        ValueError: no values, or NaN.
    """
    x = sorted(values)
    if not x or any(map(math.isnan, x)):
        raise ValueError(f"values={x!r} must be numbers, at least one, none of them NaN")
    n = len(x)
    medians = sorted((_middle(x[i - 1], x[j - 1]), ways) for (i, j), ways in _resamples(n))
    low, high = _end(medians, n), _end(medians[::-1], n)
    return Interval(_middle(x[(n - 1) // 2], x[n // 2]), low, high)


def _end(medians: Sequence[tuple[float, int]], n: int) -> float:
    """The first median that leaves no less than a tail behind it."""
    seen, least = accumulate(ways for _, ways in medians), math.ceil(TAIL * n**n)
    return next(v for (v, _), ways in zip(medians, seen, strict=True) if ways >= least)


def _middle(a: float, b: float) -> float:
    """The mean of two; 0 between −∞ and ∞, which are worst for either side of a difference."""
    if a == b:
        return a
    middle = a / 2 + b / 2
    return 0.0 if math.isnan(middle) else middle


@lru_cache
def _resamples(n: int) -> list[tuple[tuple[int, int], int]]:
    """Ranks whose mean is the median of a resample → how many of the nⁿ resamples have it."""
    whole = [_at_least(n, k, n // 2 + 1) for k in range(n + 1)]
    if n % 2:
        return [((k, k), whole[k] - whole[k - 1]) for k in range(1, n + 1)]
    m = n // 2
    power = [k**m for k in range(n + 1)]
    first = [0, *(math.comb(n, m) * (power[i] - power[i - 1]) for i in range(1, n + 1))]
    apart = {
        (i, j): first[i] * (power[n - j + 1] - power[n - j])
        for i in range(1, n)
        for j in range(i + 1, n + 1)
    }
    lower = [_at_least(n, k, m) for k in range(n + 1)]
    same = {(k, k): lower[k] - lower[k - 1] - first[k] * power[n - k] for k in range(1, n + 1)}
    return [(ranks, ways) for ranks, ways in {**apart, **same}.items() if ways]


def _at_least(n: int, k: int, least: int) -> int:
    """How many of the nⁿ resamples hold ``least`` or more of the k smallest values."""
    return sum(math.comb(n, s) * k**s * (n - k) ** (n - s) for s in range(least, n + 1))


# --- two encodings -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """a against b.

    Args:
        difference: of a − b, seed by seed: median and interval; None without a common seed.
        pairs: seeds that both have.
        unpaired: seeds that one of them has.
        verdict: ``"lower"`` or ``"higher"``, a than b, or ``"not distinguishable"``.
        rule: which rule told them apart, or None.
        chance: at most so often would that rule tell two equal encodings apart; None without.
        risk: at most so often would either rule, with so many seeds.
    """

    difference: Interval | None
    pairs: int
    unpaired: int
    verdict: str
    rule: str | None
    chance: float | None
    risk: float


def compare(a: BySeed, b: BySeed) -> Comparison:
    """Whether the scores of two encodings are apart, by the rules above.

    Raises:
        ValueError: one has no score, or a NaN.
    """
    common = sorted(a.keys() & b.keys())
    differences = [_difference(a[seed], b[seed]) for seed in common]
    paired = interval(differences) if differences else None
    apart = [
        (side, rule, chance)
        for side, rule, chance in (
            (_side(interval(a.values()), interval(b.values())), BY_INTERVALS, _gap(len(a), len(b))),
            (_side(paired, ZERO) if paired else None, BY_PAIRS, _split(differences)),
        )
        if side is not None and chance <= MOST_CHANCE
    ]
    verdict, rule, chance = apart[0] if apart else (NOT_DISTINGUISHABLE, None, None)
    return Comparison(
        paired,
        len(common),
        len(a.keys() ^ b.keys()),
        verdict,
        rule,
        None if chance is None else float(chance),
        float(risk(len(a), len(b), len(common))),
    )


def _gap(n: int, m: int) -> Fraction:
    """The chance of the first rule; 1 where there are too few seeds for it."""
    return chance_of_gap(n, m) if min(n, m) >= LEAST_SEEDS else Fraction(1)


def _split(differences: Sequence[float]) -> Fraction:
    """The chance of so lopsided a split of signs; a difference of 0 counts against it."""
    agreeing = max(sum(d < 0 for d in differences), sum(d > 0 for d in differences))
    return chance_of_split(len(differences), len(differences) - agreeing)


def risk(n: int, m: int, pairs: int) -> Fraction:
    """At most how often two equal encodings of n and m seeds are told apart by either rule."""
    gap = _gap(n, m)
    splits = (chance_of_split(pairs, against) for against in range(pairs))
    split = max((chance for chance in splits if chance <= MOST_CHANCE), default=Fraction(0))
    return split + (gap if gap <= MOST_CHANCE else 0)


ZERO = Interval(0.0, 0.0, 0.0)


def _side(a: Interval, b: Interval) -> str | None:
    """Where an interval lies against another, if they do not overlap."""
    if a.high < b.low:
        return "lower"
    return "higher" if a.low > b.high else None


def _difference(a: float, b: float) -> float:
    """a − b; 0 of two that both diverged."""
    return 0.0 if a == b else a - b


def chance_of_gap(n: int, m: int) -> Fraction:
    r"""At most how often the intervals of two equal encodings, of n and m seeds, do not overlap.

    With the low end of one no higher than its k-th smallest value, and the high end of the other no
    lower than its l-th largest, they can part only if the one lies above the other; among n + m
    values in random order that happens with probability

    .. math:: 2 \sum_{j \ge m+1-l} \binom{k-1+j}{j} \binom{n-k+m-j}{m-j} \Big/ \binom{n+m}{n}

    which is :math:`2/\binom{2n}{n}` where the intervals are the ranges, k = l = 1. The bound is
    reached where n and m are odd or at most 4.
    """
    k, rest = _rank(n), m + 1 - _rank(m)
    orders = sum(
        math.comb(k - 1 + j, j) * math.comb(n - k + m - j, m - j) for j in range(rest, m + 1)
    )
    return min(Fraction(1), Fraction(2 * orders, math.comb(n + m, n)))


def chance_of_split(pairs: int, against: int) -> Fraction:
    """How often at most ``against`` of ``pairs`` equal pairs fall to one of the two sides."""
    ways = sum(math.comb(pairs, s) for s in range(against + 1))
    return min(Fraction(1), Fraction(2 * ways, 2**pairs))


@lru_cache
def _rank(n: int) -> int:
    """The smallest k for which the low end of an interval of n values is at most the k-th."""
    return next(k for k in range(1, n + 1) if _at_least(n, k, n // 2 + 1) >= TAIL * n**n)


# --- many encodings ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranking:
    """Encodings at one length.

    Args:
        seeds: those that every encoding has; ranks are taken at these alone.
        ranks: encoding → mean rank over ``seeds``, 1 the best; empty without a common seed.
        best: the encoding with the best median; of several, the one of best rank, then of name.
        alike: the encodings not distinguishable from the best, by name.
    """

    seeds: tuple[int, ...]
    ranks: dict[str, float]
    best: str
    alike: tuple[str, ...]


def rank(scores: Mapping[str, BySeed], *, lower_is_better: bool) -> Ranking:
    """Mean ranks over seeds, ties shared, and who cannot be told from the best.

    Raises:
        ValueError: no encodings, or one has no score, or a NaN.
    """
    if not scores:
        raise ValueError("scores={} must hold one encoding at least")
    sign = 1 if lower_is_better else -1
    seeds = sorted(set.intersection(*(set(own) for own in scores.values())))
    places = [_places({name: sign * own[seed] for name, own in scores.items()}) for seed in seeds]
    ranks = {name: _mean([place[name] for place in places]) for name in scores if places}
    medians = {name: sign * interval(own.values()).median for name, own in scores.items()}
    best = min(scores, key=lambda name: (medians[name], ranks.get(name, 0.0), name))
    alike = sorted(
        name
        for name, own in scores.items()
        if name != best and compare(own, scores[best]).verdict == NOT_DISTINGUISHABLE
    )
    return Ranking(tuple(seeds), ranks, best, tuple(alike))


def _places(values: Mapping[str, float]) -> dict[str, Fraction]:
    """1 for the lowest; equal values share the mean of their places."""
    return {
        name: Fraction(
            1 + sum(v < value for v in values.values()) + sum(v <= value for v in values.values()),
            2,
        )
        for name, value in values.items()
    }


def _mean(values: Sequence[Fraction]) -> float:
    return float(sum(values, Fraction(0)) / len(values))
