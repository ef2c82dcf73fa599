"""Before a race: every encoding is made once, and reads one example, so that nothing fails later.

It takes a moment for each encoding, and says what is wrong before any model has been trained.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ropewalk.checks.content import one_thread
from ropewalk.lab import task as tasks
from ropewalk.lab import trial as trials_of
from ropewalk.lab.trial import Trial


def prepare(trials: Iterable[Trial]) -> None:
    """Build the model of each encoding and let it read one example to train on.

    Raises:
        ValueError: an encoding cannot be made in these sizes, or its model cannot read; the message
            names it.
    """
    first = {each.encoding: each for each in reversed(list(trials))}
    for each in reversed(first.values()):
        try:
            _read(each)
        except Exception as error:
            kind = "" if isinstance(error, (TypeError, ValueError)) else f"{type(error).__name__}: "
            raise ValueError(
                f"{each.encoding} cannot race at dim={each.dim}, heads={each.heads}, "
                f"train_length={each.train_length}: {kind}{error}"
            ) from error


def _read(trial: Trial) -> None:
    task = tasks.get(trial.task).make(**dict(trial.task_options))
    with one_thread(), torch.no_grad():
        model = trials_of.build(trial, task)
        generator = torch.Generator().manual_seed(trial.seed)
        tasks.loss(model, task.batch(generator, 1, trial.train_length))
