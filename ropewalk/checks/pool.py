"""Entries of the catalogue measured by several processes at once, each on one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from ropewalk import catalog, plugins
from ropewalk.checks import process, report

Answer = list[float] | None


def checked(
    answers: Mapping[str, Answer],
    processes: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, report.Report]:
    """The report of each entry, in the order given.

    Args:
        answers: name → the fingerprint that a fresh process gave, so that no worker asks again.
        processes: at most so many.
        progress: called with (name, number of entries done, number of entries) after each.

    Raises:
        concurrent.futures.process.BrokenProcessPool: a worker ended, as for want of memory.
    """
    found: dict[str, report.Report] = {}
    everywhere = [name for name in answers if plugins.is_everywhere(name)]
    workers = min(processes, max(len(everywhere), 1))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(_check, name, answers[name]): name for name in everywhere}
        try:
            for name in answers:
                if name not in everywhere:
                    found[name] = report.check(name)
                    _tell(progress, name, len(found), len(answers))
            for done in as_completed(waiting):
                name = waiting[done]
                found[name] = done.result()
                _tell(progress, name, len(found), len(answers))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {name: found[name] for name in answers}


def _tell(progress: Callable[[str, int, int], None] | None, *words: object) -> None:
    if progress is not None:
        progress(*words)  # pyright: ignore[reportArgumentType]


def _check(name: str, answer: Answer) -> report.Report:
    """In a worker: the report of one entry."""
    spec = catalog.get(name)
    process.remember(report._request(spec, dict(spec.config)), answer)
    return report.check(name)
