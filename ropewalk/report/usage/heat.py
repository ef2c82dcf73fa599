"""A heat map of layers by pairs inside a page: the stronger the colour, the larger the number.

A layer without numbers keeps its row, which says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ropewalk.report.figures.panels import evenly
from ropewalk.report.figures.scale import number
from ropewalk.report.html import Html, el

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 58, 20, 24, 40
TALLEST, LARGEST = 480, 18
"""Of a map, and of one of its rows."""
NUMBERED = 12
"""Rows and columns that have a number beside them."""


def heat(
    title: str,
    rows: Sequence[tuple[str, Sequence[float] | None]],
    missing: Mapping[str, str],
    key: str,
) -> Html:
    """The map as SVG.

    Args:
        title: what is shown.
        rows: name of a row and its numbers, at least 0; None if it has none.
        missing: why a row has none, by its name.
        key: makes its ids unique in a page.
    """
    values = [v for _, row in rows for v in row or ()]
    most = max(values, default=0.0) or 1.0
    columns = max((len(row) for _, row in rows if row is not None), default=1)
    tall = min(LARGEST, TALLEST / len(rows))
    wide = (WIDTH - LEFT - RIGHT) / columns
    bottom = TOP + tall * len(rows)
    numbered = set(evenly(len(rows), NUMBERED))
    parts = []
    for y, (name, row) in enumerate(rows):
        top = TOP + y * tall
        middle = round(top + tall / 2 + 4, 1)
        if y in numbered:
            parts.append(el("text", name, x=LEFT - 8, y=middle, text_anchor="end"))
        if row is None:
            line = f"M{LEFT} {round(top + tall / 2, 1)}H{WIDTH - RIGHT}"
            parts.append(el("path", class_="rule", d=line))
            parts.append(el("text", missing.get(name, ""), x=LEFT + 8, y=middle))
        else:
            cells = (_cell(name, c, v, most, wide, tall, top) for c, v in enumerate(row))
            parts.append(el("g", *cells))
    for c in evenly(columns, NUMBERED):
        x = round(LEFT + (c + 0.5) * wide, 1)
        parts.append(el("text", str(c), x=x, y=round(bottom + 15, 1), text_anchor="middle"))
    words = f"from 0 (paper) to {number(most)} (full colour)"
    about = f"{title}, one row a layer, pairs from the fastest to the slowest; {words}"
    middle = (LEFT + WIDTH - RIGHT) / 2
    return el(
        "svg",
        el("title", title, id=f"{key}-title"),
        el("desc", about, id=f"{key}-about"),
        el("text", f"{title}: {words}", class_="name", x=LEFT, y=14),
        *parts,
        el("text", "pair, fastest to slowest", class_="name", x=middle,
           y=round(bottom + 33, 1), text_anchor="middle"),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {bottom + BOTTOM:.0f}",
        role="img",
        aria_labelledby=f"{key}-title {key}-about",
    )  # fmt: skip


def _cell(
    name: str, column: int, value: float, most: float, wide: float, tall: float, top: float
) -> Html:
    return el(
        "rect",
        el("title", f"layer {name}, pair {column}: {number(value)}"),
        class_="cell",
        x=f"{LEFT + column * wide:.2f}",
        y=f"{top:.2f}",
        width=f"{wide:.2f}",
        height=f"{tall:.2f}",
        fill_opacity=f"{value / most:.3f}",
    )
