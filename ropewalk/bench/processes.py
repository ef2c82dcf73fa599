"""A plan in processes of its own, so that threads, memory and libraries are as the plan wants."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ropewalk
from ropewalk.bench.rotate import Plan, Row, check_threads

_KEY = ("shape", "dtype", "layout", "mode", "form")


def in_processes(
    plan: Plan, processes: int = 1, told: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, Any]:
    """:func:`ropewalk.bench.rotate.run` in ``processes`` fresh processes, one after the other.

    Returns:
        One document: ratios are medians over processes, errors the largest, and each row has
        ``"spread"``, the lowest and highest ``ratio_to_copy``.

    Raises:
        ValueError: the plan cannot be run; the message is the process's own.
    """
    if processes < 1:
        raise ValueError(f"processes={processes} must be at least 1")
    plan.cases()  # these two refuse here, before a process starts
    check_threads(plan.threads)
    documents = []
    for at in range(processes):
        documents.append(_run(plan, lambda done, of, at=at: told(at * of + done, processes * of)))
    return merged(documents)


def _run(plan: Plan, told: Callable[[int, int], None]) -> dict[str, Any]:
    threads = {} if plan.threads is None else {"OMP_NUM_THREADS": str(plan.threads)}
    home = str(Path(ropewalk.__file__).resolve().parent.parent)
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-m", "ropewalk.bench.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(paths)},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(plan.as_dict()))
        process.stdin.close()
        document = None
        try:
            for line in process.stdout:
                said = json.loads(line)
                if "done" in said:
                    told(said["done"], said["of"])
                elif "refused" in said:
                    raise ValueError(said["refused"])
                else:
                    document = said
        except BaseException:
            process.kill()
            raise
    if document is None:
        raise ValueError(f"a measuring process ended with status {process.returncode}")
    return document


def merged(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Documents of the same plan as one."""
    every = [
        [row for document in documents for row in document["rows"] if _key(row) == key]
        for key in dict.fromkeys(_key(row) for row in documents[0]["rows"])
    ]
    rows = [_merged(rows) for rows in every]
    return {**documents[0], "processes": len(documents), "rows": rows}


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(tuple(row[name]) if name == "shape" else row[name] for name in _KEY)


def _merged(rows: Sequence[Row]) -> Row:
    def told(name: str) -> list[float]:
        return [row[name] for row in rows if row[name] is not None]

    wrong = next((row for row in rows if row["verdict"] == "wrong"), None)
    ratios = told("ratio_to_copy")
    if wrong is not None or not ratios:
        return {**(wrong or rows[0]), "spread": None}
    return {
        **rows[0],
        "ratio_to_copy": statistics.median(ratios),
        "ratio_to_ropewalk": statistics.median(told("ratio_to_ropewalk") or [float("nan")]),
        "error": max(told("error"), default=None),
        "error_at_131071": max(told("error_at_131071"), default=None),
        "noisy": any(told("noisy")),
        "rounds": sum(int(n) for n in told("rounds")),
        "spread": [min(ratios), max(ratios)],
    }
