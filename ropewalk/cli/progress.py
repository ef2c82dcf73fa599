"""A bar on stderr, where a person watches; nothing elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

MOST_NAMES = 3
"""Of what runs, shown beside a bar."""


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to call with how many are done, and how many there are."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = Console(stderr=True)
    columns = TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(
        *columns, console=screen, transient=True, disable=not screen.is_terminal
    ) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


class Watch:
    """What a bar shows of work that goes on in several places: what runs, and the time left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, running="", end=None)
        self._running: list[str] = []
        self._began = time.monotonic()

    def started(self, name: str) -> None:
        """``name`` runs now."""
        self._running.append(name)
        self._show()

    def ended(self, name: str | None, done: int, of: int, free: int) -> None:
        """``name`` has ended; ``free`` of those that are done took no time."""
        if name in self._running:
            self._running.remove(name)
        now, paid = time.monotonic(), done - free
        end = now + (now - self._began) / paid * (of - done) if paid else None
        self._progress.update(self._task, completed=done, total=of, end=end)
        self._show()

    def _show(self) -> None:
        more = len(self._running) - MOST_NAMES
        names = ", ".join(self._running[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        self._progress.update(self._task, running=f"running: {names}" if names else "")


@contextmanager
def watch(label: str) -> Iterator[Watch]:
    """A bar with the time left and what is running."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
    )
    from rich.table import Column
    from rich.text import Text

    class Left(ProgressColumn):
        """The time left, by what a trial took so far."""

        def render(self, task: Task) -> Text:
            end = task.fields["end"]
            return Text("" if end is None else about(max(0.0, end - time.monotonic())))

    screen = Console(stderr=True)
    room = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    names = TextColumn("{task.fields[running]}", markup=False, table_column=room)
    columns = TextColumn(label), BarColumn(20), MofNCompleteColumn(), Left(), names
    with Progress(
        *columns,
        console=screen,
        transient=True,
        expand=True,
        refresh_per_second=2,
        disable=not screen.is_terminal,
    ) as progress:
        yield Watch(progress)


def about(seconds: float) -> str:
    """A duration in the words of one who waits: ``40 s left``, ``12 min left``, ``3.1 h left``."""
    if seconds < 90:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 5400 else f"{seconds / 3600:.1f} h left"
