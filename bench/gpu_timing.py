"""Interleaved rounds: every form takes its turn in every round, and ratios are within a round.

What runs the clock is an argument, so that the arithmetic is the same for a GPU's events and for
the made-up times of a test.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch

COPY = "copy"
WARM = 3


class Clock(Protocol):
    """Seconds of each call, which may be known only at the end."""

    def time(self, call: Callable[[], object]) -> Callable[[], float]:
        """Run ``call``; the result gives its seconds once :meth:`finish` has been called."""
        ...

    def finish(self) -> None:
        """Wait until all that was timed is over."""
        ...


class Events:
    """CUDA events around a call, with the cache flushed before it where ``flush`` has bytes."""

    def __init__(self, device: torch.device, flush: int) -> None:
        self._device = device
        self._dirt = torch.empty(flush, dtype=torch.int8, device=device) if flush else None

    def time(self, call: Callable[[], object]) -> Callable[[], float]:
        """See :class:`Clock`."""
        if self._dirt is not None:
            self._dirt.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        return lambda: begin.elapsed_time(end) / 1e3

    def finish(self) -> None:
        """See :class:`Clock`."""
        torch.cuda.synchronize(self._device)


class Calls:
    """The mean of calls one after another by the host's clock: what a decode step pays."""

    def __init__(self, synchronize: Callable[[], object], calls: int) -> None:
        self._synchronize = synchronize
        self._calls = calls

    def time(self, call: Callable[[], object]) -> Callable[[], float]:
        """See :class:`Clock`."""
        self._synchronize()
        begin = time.perf_counter()
        for _ in range(self._calls):
            call()
        self._synchronize()
        seconds = (time.perf_counter() - begin) / self._calls
        return lambda: seconds

    def finish(self) -> None:
        """See :class:`Clock`."""


class Timing(NamedTuple):
    """Medians of one form: seconds, and the ratio to the copy of the same round."""

    seconds: float
    ratio: float
    noisy: bool
    """The median copy took more than twice the fastest one: run this again."""


def measure(
    forms: Mapping[str, Callable[[], object]], clock: Clock, rounds: int
) -> dict[str, Timing]:
    """Medians over ``rounds`` rounds; ``forms`` hold a ``copy``."""
    taken: list[dict[str, Callable[[], float]]] = []
    for number in range(WARM + rounds):
        names = list(forms)
        turn = number % len(names)  # no form always comes behind the same other
        taken.append({name: clock.time(forms[name]) for name in names[turn:] + names[:turn]})
    clock.finish()
    return medians([{n: s() for n, s in seconds.items()} for seconds in taken[WARM:]])


def medians(rounds: list[dict[str, float]]) -> dict[str, Timing]:
    """The medians of each form over rounds of seconds."""
    copies = [seconds[COPY] for seconds in rounds]
    noisy = statistics.median(copies) > 2 * min(copies)
    return {
        name: Timing(
            statistics.median(seconds[name] for seconds in rounds),
            statistics.median(seconds[name] / seconds[COPY] for seconds in rounds),
            noisy,
        )
        for name in rounds[0]
    }
