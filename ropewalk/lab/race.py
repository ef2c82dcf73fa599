"""A race: trials that the store lacks are run, and every record is stored as it comes.

It may be ended at any moment, by any means, and started again: what is stored is not run again, and
a record does not depend on what ran before it. Several races may share a store; each passes over
what another has stored when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from ropewalk.lab import trial as trials_of
from ropewalk.lab.executors.base import Executor, Failure, Work
from ropewalk.lab.record import Record
from ropewalk.lab.store import Differs, Store
from ropewalk.lab.trial import Trial


@dataclass(frozen=True)
class Progress:
    """How far a race is.

    Args:
        done: trials that have a record or have failed, those found in the store included.
        total: all of them, each once.
        stored: those found in the store, that nobody had to wait for.
        trial: the one that ended just now; None at the start.
        outcome: its record, or its failure.
    """

    done: int
    total: int
    stored: int
    trial: Trial | None = None
    outcome: Record | Failure | None = None


Told = Callable[[Progress], object]


class Failed(ValueError):
    """Trials gave no record; ``failures`` says which and why. All others are in the store."""

    def __init__(self, message: str, failures: list[tuple[Trial, Failure]]) -> None:
        super().__init__(message)
        self.failures = failures


def label(trial: Trial) -> str:
    """What a trial is called in a message."""
    return f"{trial.encoding} seed {trial.seed}"


def race(
    trials: Iterable[Trial],
    store: Store,
    executor: Executor,
    told: Told = lambda progress: None,
    *,
    work: Work = trials_of.run,
) -> list[Record]:
    """The records of ``trials``, in their order.

    Args:
        trials: to run; one that comes twice runs once.
        store: where records are found and put.
        executor: where trials run (:func:`ropewalk.lab.executors.make`).
        told: called at the start and whenever a trial has ended.
        work: from a trial to its record.

    Raises:
        ValueError: the store cannot be read or written (before anything runs), or cannot take a
            record any more.
        Failed: at the end, after all that could be run and stored.
    """
    order = list(trials)
    wanted = {trials_of.key(each): each for each in order}
    found = {key: record for key, record in store.ready().items() if key in wanted}
    failures: list[tuple[Trial, Failure]] = []
    stored = len(found)

    def tell(trial: Trial | None = None, outcome: Record | Failure | None = None) -> None:
        told(Progress(len(found) + len(failures), len(wanted), stored, trial, outcome))

    def missing() -> Iterator[Trial]:
        """Trials to run; another race may have stored one since."""
        nonlocal stored
        for key, each in wanted.items():
            if key in found:
                continue
            theirs = store.records().get(key)
            if theirs is None:
                yield each
            else:
                found[key] = theirs
                stored += 1
                tell(each, theirs)

    tell()
    if len(found) < len(wanted):
        with closing(executor.run(missing(), work)) as outcomes:
            for each, outcome in outcomes:
                if isinstance(outcome, Failure):
                    failures.append((each, outcome))
                else:
                    found[trials_of.key(each)] = outcome = _kept(store, outcome)
                tell(each, outcome)
    if failures:
        raise Failed(_failed(failures, len(wanted), store), failures)
    return [found[trials_of.key(each)] for each in order]


def _kept(store: Store, record: Record) -> Record:
    """``record``, stored; or that which a race on another machine has stored in its place.

    Raises:
        Differs: that was made with the very same things, so the trial has no one record.
    """
    try:
        store.append(record)
    except Differs as error:
        if error.stored["made"] == record["made"]:
            raise
        return error.stored
    return record


def _failed(failures: list[tuple[Trial, Failure]], total: int, store: Store) -> str:
    each = "; ".join(f"{label(trial)}: {failure.reason}" for trial, failure in failures)
    return f"{len(failures)} of {total} trials failed (the others are in {store.path}): {each}"
