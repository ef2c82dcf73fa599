"""Where trials run: this machine, a Slurm cluster or a Ray cluster, behind one small protocol."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from ropewalk.catalog import suggestion
from ropewalk.lab.executors.base import ATTEMPTS, Executor, Failure

__all__ = ["ATTEMPTS", "NAMES", "Executor", "Failure", "make"]

_CLASSES = {"local": "Local", "slurm": "Slurm", "ray": "Ray"}
NAMES = tuple(_CLASSES)


def make(name: str, workers: int | None = None, **options: Any) -> Executor:
    """An executor by its name.

    Args:
        name: "local", "slurm" or "ray".
        workers: trials at one time; what the machine or the cluster has room for if None.
        options: of the executor: see :class:`~ropewalk.lab.executors.slurm.Slurm` and
            :class:`~ropewalk.lab.executors.ray.Ray`.

    Raises:
        TypeError, ValueError: there is no such executor or option, or what it needs is missing.
    """
    if name not in _CLASSES:
        near = suggestion(str(name), list(NAMES))
        raise ValueError(f"unknown executor {name!r}{near}; known: {', '.join(NAMES)}")
    kind = getattr(import_module(f"{__name__}.{name}"), _CLASSES[name])
    known = [each for each in inspect.signature(kind).parameters if each != "workers"]
    for option in options:
        if option not in known:
            has = f"it has {', '.join(known)}" if known else "it has none but workers"
            raise TypeError(f"executor={name} has no option {option!r}; {has}")
    return kind(workers, **options)
