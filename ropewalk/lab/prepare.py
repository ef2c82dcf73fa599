"""Before a race: every encoding learns from one example and reads one of each length.

So nothing that its encoding, its sizes or its lengths make impossible fails later. It takes
a moment an encoding, and says what is wrong before any model has been trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ropewalk.checks.content import one_thread
from ropewalk.lab import task as tasks
from ropewalk.lab import trial as trials_of
from ropewalk.lab.executors.base import told
from ropewalk.lab.trial import Trial


def prepare(trials: Iterable[Trial]) -> None:
    """Let each encoding do in one model, with one example, what its trials will do with many.

    Raises:
        ValueError: an encoding cannot be made in these sizes, or its model cannot learn or read;
            the message names it, and the length.
    """
    first = {each.encoding: each for each in reversed(list(trials))}
    for each in reversed(first.values()):
        at = f"train_length={each.train_length}"
        try:
            for at in _tried(each):  # noqa: B007 (where it fails is what the message tells)
                pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a file of one's own raises, exits included
            raise ValueError(
                f"{each.encoding} cannot race at dim={each.dim}, heads={each.heads}, {at}: "
                f"{told(error)}"
            ) from error


def _tried(trial: Trial) -> Iterator[str]:
    """Each thing that a trial does, named before it is done."""
    yield f"train_length={trial.train_length}"
    with one_thread():
        task = trials_of.task_of(trial)
        model = trials_of.build(trial, task)
        generator = torch.Generator().manual_seed(trial.seed)
        example = task.longest(generator, trial.train_length)
        tasks.loss(trials_of.Reader(model, trial.seed), example).backward()
        for n in trial.lengths:
            yield f"lengths={n}"
            _read(trials_of.reader(model, trial, task, n), task, n, trial.lengths[-1])


class _Enough(Exception):
    """One example has been read."""


def _read(model: tasks.Model, task: tasks.Task, length: int, longest: int) -> None:
    """Let ``model`` read the first example that it would be scored on."""

    def once(inputs: Tensor, positions: Tensor | None) -> Tensor:
        with torch.no_grad():
            model(inputs[:1], positions)
        raise _Enough

    try:
        task.score(once, length, longest)
    except _Enough:
        return
