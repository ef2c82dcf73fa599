"""A chart of curves with their intervals, as SVG inside a page.

Colours, dashes and marks come from the page's styles, so that one drawing serves light, dark and
print, and no two of many curves look alike. Where a value is None, nothing is drawn, or, if the
chart says which end is worst, a cross at that end: a trial that diverged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.report.figures.scale import number, ticks
from ropewalk.report.html import Html, el, join

WIDTH, HEIGHT = 760, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 20, 24, 46
MARKED = 24
"""Points of a curve, up to which each has a mark of its own."""
ROOM = 6.4
"""Width of a digit under the axis."""

COLOURS = 8
DASHES = ("", "7 4", "2 4", "10 4 2 4", "14 5")
MARKS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
    "m-3.6 -3.6h7.2v7.2h-7.2z",
    "m0 -4.8l4.6 8h-9.2z",
    "m0 -5l5 5l-5 5l-5 -5z",
    "m0 4.8l4.6 -8h-9.2z",
    "m-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "m-4.6 -2.6h9.2v5.2h-9.2z",
)
CROSS = "m-5 -5l10 10m0 -10l-10 10"


class Point(NamedTuple):
    """A value with its interval; None where there is none."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Chart:
    """What a chart shows.

    Args:
        title: its name, for those who do not see it.
        about: what it shows, in words.
        across, up: what x and y are.
        curves: label → points, x ascending.
        at: the x that have a number under the axis, which reaches over all of them.
        log: x is drawn by its logarithm; every x is above 0.
        rule: an x to mark, and its name.
        worst: ``"top"`` or ``"bottom"``, where a None is drawn; ``""`` leaves it out.
    """

    title: str
    about: str
    across: str
    up: str
    curves: Mapping[str, Sequence[Point]]
    at: Sequence[float]
    log: bool = False
    rule: tuple[float, str] | None = None
    worst: str = ""


def look(index: int) -> str:
    """The class of the index-th curve, which the styles colour."""
    return f"c{index % COLOURS}"


def swatch(index: int) -> Html:
    """The look of the index-th curve, for a legend."""
    line = el("path", class_="line", d="M1 8H35", stroke_dasharray=_dash(index))
    mark = el("path", class_="mark", d=f"M18 8{MARKS[index % len(MARKS)]}")
    return el(
        "svg", line, mark, class_=look(index), viewBox="0 0 36 16", width=36, height=16,
        aria_hidden="true",
    )  # fmt: skip


def draw(chart: Chart, key: str) -> Html | None:
    """The chart; ``key`` makes its ids unique in a page. None if it has no finite number."""
    values = [
        v
        for points in chart.curves.values()
        for point in points
        for v in point[1:]
        if v is not None
    ]
    if not values:
        return None
    low, high = _span(values)
    across, up = _scales(chart, low, high)
    axes = [*_rows(chart, low, high, up), *_columns(chart, across), *_rule(chart, across)]
    return el(
        "svg",
        el("title", chart.title, id=f"{key}-title"),
        el("desc", chart.about, id=f"{key}-about"),
        *axes,
        *(_band(points, i, across, up, chart.worst) for i, points in enumerate(_all(chart))),
        *(_curve(name, i, chart, across, up) for i, name in enumerate(chart.curves)),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=f"{key}-title {key}-about",
    )


Scale = Callable[[float], float]


def _all(chart: Chart) -> list[Sequence[Point]]:
    return list(chart.curves.values())


def _scales(chart: Chart, low: float, high: float) -> tuple[Scale, Scale]:
    xs = [*chart.at, *(p.x for points in _all(chart) for p in points)]
    xs += [chart.rule[0]] if chart.rule else []
    warp = math.log if chart.log else float
    first, last = warp(min(xs)), warp(max(xs))
    inset = 14 if chart.log else 0
    width, height = WIDTH - LEFT - RIGHT - 2 * inset, HEIGHT - TOP - BOTTOM

    def across(x: float) -> float:
        share = (warp(x) - first) / (last - first) if last > first else 0.5
        return round(LEFT + inset + width * share, 1)

    def up(y: float) -> float:
        return round(TOP + height * (high - y) / (high - low), 1)

    return across, up


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The range of y: that of the values and a little more, never empty."""
    low, high = min(values), max(values)
    more = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    return low - more, high + more


def _rows(chart: Chart, low: float, high: float, up: Scale) -> Iterator[Html]:
    yield el("text", chart.up, class_="name", x=LEFT, y=14)
    for tick in ticks(low, high):
        y = up(tick)
        yield el("path", class_="grid", d=f"M{LEFT} {y}H{WIDTH - RIGHT}")
        yield el("text", number(tick), x=LEFT - 8, y=y + 4, text_anchor="end")


def _columns(chart: Chart, across: Scale) -> Iterator[Html]:
    free = -math.inf
    for x in chart.at:
        text = f"{x:,.0f}"
        half = len(text) * ROOM / 2
        if across(x) - half < free:
            continue  # it would run into the one before
        free = across(x) + half + ROOM
        yield el("text", text, x=across(x), y=HEIGHT - BOTTOM + 18, text_anchor="middle")
    yield el("text", chart.across, class_="name", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6,
             text_anchor="middle")  # fmt: skip


def _rule(chart: Chart, across: Scale) -> Iterator[Html]:
    if chart.rule is not None:
        x, text = chart.rule
        near = across(x) > WIDTH * 0.75
        yield el("path", class_="rule", d=f"M{across(x)} {TOP}V{HEIGHT - BOTTOM}")
        yield el("text", text, x=across(x) + (-6 if near else 6), y=TOP + 10,
                 text_anchor="end" if near else "start")  # fmt: skip


def _edge(worst: str) -> float | None:
    return {"top": TOP, "bottom": HEIGHT - BOTTOM}.get(worst)


def _band(points: Sequence[Point], index: int, across: Scale, up: Scale, worst: str) -> Html:
    """From low to high; a bar alone where there is one point, or an end without bound."""
    edge = _edge(worst)
    drawn = [p for p in points if p.y is not None or edge is not None]
    bound = [p if p.low is not None and p.high is not None else None for p in drawn]
    areas, bars = [], [p for p in drawn if (p.low is None) != (p.high is None)]
    for run in _runs(bound, lambda p: p is not None):
        there = [f"{across(p.x)} {up(p.high)}" for p in run]
        back = [f"{across(p.x)} {up(p.low)}" for p in reversed(run)]
        areas.append("M" + "L".join(there + back) + "z")
        bars += run if len(run) == 1 else []
    ends = [[edge if v is None else up(v) for v in (p.low, p.high)] for p in bars]
    whiskers = [f"M{across(p.x)} {a}V{b}" for p, (a, b) in zip(bars, ends, strict=True)]
    return el(
        "g",
        el("path", class_="band", d="".join(areas)) if areas else None,
        el("path", class_="whisker", d="".join(whiskers)) if whiskers else None,
        class_=look(index),
    )


def _curve(name: str, index: int, chart: Chart, across: Scale, up: Scale) -> Html:
    points, edge = chart.curves[name], _edge(chart.worst)
    placed = [(across(p.x), None if p.y is None else up(p.y), p) for p in points]
    runs = _runs(placed, lambda p: p[1] is not None)
    line = "".join("M" + "L".join(f"{x} {y}" for x, y, _ in run) for run in runs)
    marks = []
    if len(points) <= MARKED:
        for x, y, point in placed:
            shape = MARKS[index % len(MARKS)] if y is not None else CROSS
            height = edge if y is None else y
            if height is not None:
                told = el("title", _told(name, point))
                kind = "mark" if y is not None else "lost"
                marks.append(el("path", told, class_=kind, d=f"M{x} {height}{shape}"))
    drawn = el("path", class_="line", d=line, stroke_dasharray=_dash(index)) if line else None
    return el("g", drawn, join(*marks), class_=look(index))


def _told(name: str, point: Point) -> str:
    if point.y is None:
        return f"{name} at {point.x:,.0f}: diverged"
    span = [v for v in (point.low, point.high) if v is not None]
    inside = f" [{number(span[0])}, {number(span[1])}]" if len(span) == 2 else ""
    return f"{name} at {point.x:,.0f}: {number(point.y)}{inside}"


def _dash(index: int) -> str | None:
    return DASHES[index % len(DASHES)] or None


def _runs(points, there) -> list[list]:
    """The stretches of points that are there."""
    runs: list[list] = [[]]
    for point in points:
        if there(point):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
