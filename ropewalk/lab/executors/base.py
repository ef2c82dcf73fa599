"""What an executor is: it runs trials somewhere and hands back what each gave, as it ends."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ropewalk.lab.record import Record

if TYPE_CHECKING:  # trials are sent and received here, and only the workers load torch
    from ropewalk.lab.trial import Trial

ATTEMPTS = 3
"""Workers that a trial may cost; the third that is lost with it makes it a failure."""

ONE_THREAD: dict[str, str] = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)
"""Environment of a worker: as many processes as cores, a thread each."""

Work = Callable[["Trial"], Record]


@dataclass(frozen=True)
class Failure:
    """A trial that gave no record, and why, in one line."""

    reason: str


Outcomes = Generator[tuple["Trial", Record | Failure], None, None]


class Executor(Protocol):
    """Runs trials somewhere."""

    def run(self, trials: Iterable[Trial], work: Work) -> Outcomes:
        """Each trial with its record or its failure, in the order in which they end.

        Trials are taken one by one as there is room, so a later one may depend on what an earlier
        one gave. A worker that is lost costs its trial another try, ``ATTEMPTS`` in all. Nothing is
        left running when the generator is exhausted, closed or interrupted.

        Args:
            trials: to run.
            work: what to do with each; importable by its name in another process.
        """
        ...


def attempt(work: Work, trial: Trial) -> Record | Failure:
    """What runs in a worker: an exception is an answer, told in one line."""
    try:
        return work(trial)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Failure(told(error, kind=True))


def told(error: BaseException, *, kind: bool = False) -> str:
    """An exception in one line: with its kind, unless ours is a message that needs none."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # its own words raise
        said = ""
    if said and not kind and isinstance(error, TypeError | ValueError):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def lost(how: str, remedy: str) -> Failure:
    """The failure of a trial that has used up its attempts."""
    return Failure(f"its worker was lost {ATTEMPTS} times, at last {how}; {remedy}")


def whole(name: str, value: int | None) -> int | None:
    """``value``, at least 1, or None.

    Raises:
        TypeError, ValueError: it is neither.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} must be a whole number")
    if value < 1:
        raise ValueError(f"{name}={value} must be at least 1")
    return value


def cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may use: by affinity, and by a container's quota."""
    if hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    else:
        found = os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
        return max(1, min(found, math.ceil(int(allowed) / int(period))))
    except (OSError, ValueError):  # no container, or no limit ("max")
        return found


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Environment variables as given inside, for processes that start there."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
