"""Time in turns: what one form takes, divided by what another takes in the same round."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

Seconds = Mapping[str, Sequence[float | None]]
"""Of each form, one time a round; None where it sat the round out."""

LEAST_ROUNDS = 3
"""Rounds in which even the slowest form takes part."""
RERUNS = 2
"""How often a noisy measurement is taken anew."""


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Args:
        rounds: in each of which every form has its turn.
        seconds: that one form may take in all; a slower one sits rounds out, evenly spread, but
            takes part in at least :data:`LEAST_ROUNDS`. None: every form in every round.
        sample: seconds that one turn lasts at least, by calling several times.
    """

    rounds: int = 31
    seconds: float | None = 0.12
    sample: float = 200e-6


def interleaved(
    forms: Mapping[str, Callable[[], object]],
    effort: Effort,
    always: Sequence[str] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> Seconds:
    """Seconds a call of each form, round by round; the order turns by one place each round.

    Args:
        forms: what to call. The first sets the number of calls of a turn.
        effort: how long.
        always: forms that never sit out.
        clock: seconds, for tests.
    """
    warm = {name: _warm(form, clock) for name, form in forms.items()}
    quickest = max(next(iter(warm.values())), 1e-9)
    calls = min(64, max(1, math.ceil(effort.sample / quickest)))
    every = {
        name: 1 if name in always else _every(seconds * calls, effort)
        for name, seconds in warm.items()
    }
    names = list(forms)
    found: dict[str, list[float | None]] = {name: [] for name in names}
    with _no_collection():
        for turn in range(effort.rounds):
            at = turn % len(names)
            for name in names[at:] + names[:at]:
                due = turn % every[name] == 0
                found[name].append(_timed(forms[name], calls, clock) if due else None)
    return found


_SLOW = 0.05
"""Seconds from which one call is warm-up enough."""


def _warm(form: Callable[[], object], clock: Callable[[], float]) -> float:
    first = _timed(form, 1, clock)
    return first if first > _SLOW else min(first, _timed(form, 1, clock))


def _every(seconds: float, effort: Effort) -> int:
    """The form takes part in every n-th round."""
    if effort.seconds is None:
        return 1
    wanted = math.ceil(effort.rounds * seconds / effort.seconds)
    return max(1, min(wanted, effort.rounds // LEAST_ROUNDS))


def _timed(form: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        form()
    return (clock() - start) / calls


@contextmanager
def _no_collection() -> Iterator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def ratio(seconds: Seconds, form: str, to: str) -> float:
    """The median over rounds of form ÷ to, of rounds in which both took part."""
    return statistics.median(a / b for a, b in _shared(seconds, form, to))


def rounds_of(seconds: Seconds, form: str) -> int:
    """Rounds in which the form took part."""
    return sum(value is not None for value in seconds[form])


def _shared(seconds: Seconds, form: str, to: str) -> list[tuple[float, float]]:
    pairs = zip(seconds[form], seconds[to], strict=True)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def is_noisy(seconds: Seconds, copy: str) -> bool:
    """Whether the median copy took more than twice as long as the quickest."""
    times = [value for value in seconds[copy] if value is not None]
    return statistics.median(times) > 2 * min(times)


def settled(
    measure: Callable[[], Seconds], copy: str, reruns: int = RERUNS
) -> tuple[Seconds, bool]:
    """A measurement that is not noisy, or the last of a bounded number of them, and whether."""
    for _ in range(reruns):
        seconds = measure()
        if not is_noisy(seconds, copy):
            return seconds, False
    seconds = measure()
    return seconds, is_noisy(seconds, copy)
