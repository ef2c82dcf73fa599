"""Processes of this machine, one thread each: the default executor.

Each slot is one process with a pipe of its own, so the death of one is told apart from the others'
and costs no trial but its own. A worker watches its parent and ends with it, whatever ended it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from ropewalk.lab.executors.base import (
    ATTEMPTS,
    ONE_THREAD,
    Failure,
    Outcomes,
    Work,
    attempt,
    cores,
    environment,
    lost,
    whole,
)
from ropewalk.lab.record import Record

if TYPE_CHECKING:
    from ropewalk.lab.trial import Trial

DYING = 5.0
"""Seconds between the end of a worker's pipe and its own."""

_READY = "ready"


class Local:
    """A process pool that outlives its processes.

    Args:
        workers: processes; as many as cores that this process may use if None.

    Raises:
        TypeError, ValueError: ``workers`` is no whole number of at least 1.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = whole("workers", workers) or cores()

    def run(self, trials: Iterable[Trial], work: Work) -> Outcomes:
        """As :class:`~ropewalk.lab.executors.base.Executor`.

        Raises:
            ValueError: workers cannot be started, or end before they can take a trial.
        """
        coming = iter(trials)
        again: deque[tuple[Trial, int]] = deque()
        slots: list[_Slot] = []
        try:
            while True:
                while len(slots) < self.workers:
                    job = again.popleft() if again else _next(coming)
                    if job is None:
                        break
                    slots.append(_Slot(work, *job))
                if not slots:
                    return
                for slot in _spoken(slots):
                    if slot.answer is None:  # it died
                        slots.remove(slot)
                        how = slot.died()
                        if slot.tries < ATTEMPTS:
                            again.append((slot.trial, slot.tries + 1))
                            continue
                        if not slot.began:
                            raise ValueError(_NO_START.format(how=how))
                        yield slot.trial, lost(how, "it may need more memory than there is")
                        continue
                    done = slot.trial, slot.answer
                    job = again.popleft() if again else _next(coming)
                    if job is None:
                        slots.remove(slot)
                        slot.end()
                    else:
                        slot.give(*job)
                    yield done
        finally:
            for slot in slots:
                slot.end()


_NO_START = (
    "workers of executor=local ended as they started ({how}): a script that races needs "
    "`if __name__ == '__main__':` around what it does"
)


def _next(coming: Iterator[Trial]) -> tuple[Trial, int] | None:
    trial = next(coming, None)
    return None if trial is None else (trial, 1)


class _Slot:
    """One process, the trial it has, how often that was tried, and the last answer."""

    def __init__(self, work: Work, trial: Trial, tries: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        try:
            with environment(ONE_THREAD), _deaf_to_interrupts():
                self.process.start()
        except OSError as error:
            raise ValueError(
                f"executor=local could not start a worker ({error.strerror}): give fewer workers"
            ) from error
        theirs.close()
        self.began = False
        self.give(trial, tries)

    def give(self, trial: Trial, tries: int) -> None:
        self.trial, self.tries = trial, tries
        self.answer: Record | Failure | None = None
        with suppress(OSError):  # it died, and the next look at it says so
            self.pipe.send(trial)

    def listen(self) -> bool:
        """Whether there is news: an answer, or (with none) the death of the process."""
        try:
            message: Any = self.pipe.recv()
        except (EOFError, OSError):
            return True
        if message == _READY:
            self.began = True
            return False
        self.answer = message
        return True

    def died(self) -> str:
        """How it ended."""
        self.process.join(DYING)
        self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        self.end()
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    def end(self) -> None:
        """End the process now, whatever it does."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.pipe.close()


def _spoken(slots: list[_Slot]) -> list[_Slot]:
    """Slots with news, after waiting for at least one message.

    The end of a process closes its end of the pipe, so one wait sees answers and deaths alike, and
    an answer that was sent before a death is still read.
    """
    heard = wait([slot.pipe for slot in slots])
    return [slot for slot in slots if slot.pipe in heard and slot.listen()]


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started inside never see Ctrl-C: the parent does, and ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, work: Work) -> None:
    """A worker: trials in, answers out, until the parent has no more or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # what an encoding prints is no part of what the race prints
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send(_READY)
    while True:
        try:
            trial = pipe.recv()
        except EOFError:
            return
        pipe.send(attempt(work, trial))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
