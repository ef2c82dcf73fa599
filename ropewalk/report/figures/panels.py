"""What a panel holds: numbers and words, nothing of how they are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Curve = Sequence[float | None]
"""One value for each x; None where there is none."""


@dataclass(frozen=True)
class Lines:
    """Curves over a common x.

    Args:
        title: what is shown.
        across: what x is.
        x: ascending.
        curves: label → values.
        powers: y is drawn by powers of ten; every value is above 0.
        dots: each value is a dot of its own, and neighbours are not joined.
        marks: label → the x of an upright line; the axis reaches to every one.
    """

    title: str
    across: str
    x: Sequence[float]
    curves: Mapping[str, Curve]
    powers: bool = False
    dots: bool = False
    marks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Heat:
    """A number for each place of a grid.

    Args:
        title: what is shown.
        across, down: what columns and rows are.
        rows: from the top, each as long as the others.
        row_step: every how-many-th row of the whole this is.
    """

    title: str
    across: str
    down: str
    rows: Sequence[Sequence[float]]
    row_step: int = 1


Panel = Lines | Heat


@dataclass(frozen=True)
class Figure:
    """Panels side by side under one title; the caption says in words what they show."""

    title: str
    caption: str
    panels: tuple[Panel, ...]


def evenly(count: int, most: int) -> list[int]:
    """At most ``most`` of ``count`` places, evenly from first to last."""
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)] if most > 1 else [0]
