"""A figure as SVG: the same bytes wherever the same numbers are drawn.

Coordinates are rounded, colours come in nine levels, and no font, script or image is fetched.
The figure has its own background, light or dark as the reader's system is.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from ropewalk.report.figures.panels import Curve, Figure, Heat, Lines, Panel
from ropewalk.report.figures.scale import DIGITS, ends, number, power, ticks

WIDTH, HEIGHT = 760, 270
LEFT, RIGHT, TOP, BOTTOM, GUTTER = 56, 16, 40, 38, 12
LEVELS = 9
"""Colours of a heat map."""
HEAT = (
    *("#1d4f91", "#3f78b5", "#77a5d0", "#b4cde3"),
    *("#e4e4e0", "#f0c8a4", "#e39b5f", "#c96c2a", "#8f430f"),
)
INKS = (
    *("#2f7ed8", "#d9632b", "#2a9d6f", "#b0509c"),
    *("#a07d00", "#7a74e0", "#cc4f62", "#3f97a8"),
)
MARK = "#888"
"""Of upright lines; it shows on either background."""
LETTER = 6.5
"""Pixels that a letter may take."""
STYLE = (
    ".p{fill:#fff}.g{stroke:#ddd}text{font:11px sans-serif;fill:#444}.t{fill:#111;font-size:12px}"
    "@media (prefers-color-scheme:dark){.p{fill:#1b1b1b}.g{stroke:#3a3a3a}text{fill:#bbb}"
    ".t{fill:#eee}}"
    ".c{fill:none;stroke-width:1.5;stroke-linejoin:round}"
    ".d{fill:none;stroke-width:4;stroke-linecap:round}"
)


def svg(figure: Figure) -> str:
    """The figure as one SVG document.

    Raises:
        ValueError: it has no panel, or a panel has no finite number.
    """
    if not figure.panels:
        raise ValueError(f"{figure.title}: a figure needs a panel")
    room = (WIDTH - GUTTER * (len(figure.panels) - 1)) // len(figure.panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="title about"><title id="title">{html.escape(figure.title)}</title>',
        f'<desc id="about">{html.escape(figure.caption)}</desc><style>{STYLE}</style>',
        f'<rect class="p" width="{WIDTH}" height="{HEIGHT}"/>',
    ]
    for place, panel in enumerate(figure.panels):
        parts += _panel(panel, place * (room + GUTTER), room)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, start: int, room: int) -> Iterator[str]:
    """A panel with its title, ``room`` wide from ``start``."""
    left, right = start + LEFT, start + room - RIGHT
    yield f'<text class="t" x="{left}" y="16">{html.escape(panel.title)}</text>'
    yield (
        f'<text x="{(left + right) // 2}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{html.escape(panel.across)}</text>"
    )
    yield from _heat(panel, left, right) if isinstance(panel, Heat) else _lines(panel, left, right)


# --- curves --------------------------------------------------------------------------------------


def _lines(panel: Lines, left: int, right: int) -> Iterator[str]:
    curves = {name: _shown(curve, panel.powers) for name, curve in panel.curves.items()}
    values = [v for curve in curves.values() for v in curve if v is not None]
    if not values:
        raise ValueError(f"{panel.title}: there is no finite number to draw")
    low, high = ends(values, panel.powers)
    bottom = HEIGHT - BOTTOM
    reached = [panel.x[0], panel.x[-1], *panel.marks.values()]
    first, last = min(reached), max(*reached, min(reached) + 1)

    def across(x: float) -> int:
        return round(left + (right - left) * (x - first) / (last - first))

    def up(y: float) -> float:
        return round(bottom - (bottom - TOP) * (y - low) / (high - low), 1)

    for tick in ticks(low, high, whole=panel.powers):
        y = round(up(tick))
        word = power(round(tick)) if panel.powers else number(tick)
        yield f'<path class="g" d="M{left} {y}H{right}"/>'
        yield f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{word}</text>'
    yield from _under(first, last, across)
    kind = "d" if panel.dots else "c"
    for ink, curve in zip(_inks(len(curves)), curves.values(), strict=True):
        path = _path(panel.x, curve, across, up, panel.dots)
        yield f'<path class="{kind}" stroke="{ink}" d="{path}"/>'
    for name, x in panel.marks.items():
        yield from _mark(name, across(x), left)
    yield from _legend(list(curves), left)


def _mark(name: str, x: int, left: int) -> Iterator[str]:
    """An upright line with its name on the side where there is room."""
    before = x - left > LETTER * len(name)
    place, anchor = (x - 4, "end") if before else (x + 4, "start")
    yield (
        f'<path class="m" stroke="{MARK}" stroke-dasharray="5 3" d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>'
    )
    yield f'<text x="{place}" y="{TOP + 11}" text-anchor="{anchor}">{html.escape(name)}</text>'


def _shown(curve: Curve, powers: bool) -> list[float | None]:
    """What is drawn: finite numbers, their powers of ten if asked."""
    finite = [v if v is not None and math.isfinite(v) else None for v in curve]
    return [math.log10(v) if v else None for v in finite] if powers else finite


def _path(x: Sequence[float], curve: Curve, across, up, dots: bool) -> str:
    parts, pen = [], False
    for at, value in zip(x, curve, strict=True):
        if value is None:
            pen = False
            continue
        parts.append(f"{'L' if pen and not dots else 'M'}{across(at)} {up(value):g}")
        parts += ["h0"] if dots else []
        pen = True
    return "".join(parts)


def _inks(count: int) -> list[str]:
    return [INKS[i % len(INKS)] for i in range(count)]


def _legend(names: list[str], left: int) -> Iterator[str]:
    if len(names) > 1:
        spans = "".join(
            f'<tspan fill="{ink}">●</tspan> {html.escape(name)}  '
            for ink, name in zip(_inks(len(names)), names, strict=True)
        )
        yield f'<text x="{left}" y="32" xml:space="preserve">{spans.rstrip()}</text>'


def _under(first: float, last: float, across) -> Iterator[str]:
    """Numbers below the panel."""
    for tick in ticks(first, last, whole=True):
        yield (
            f'<text x="{across(tick)}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">'
            f"{number(tick)}</text>"
        )


# --- heat map ------------------------------------------------------------------------------------


def _heat(panel: Heat, left: int, right: int) -> Iterator[str]:
    values = [v for row in panel.rows for v in row]
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"{panel.title}: every place of a heat map needs a finite number")
    low, high = _span(values)
    levels = [[_level(v, low, high) for v in row] for row in panel.rows]
    bottom = HEIGHT - BOTTOM
    columns, rows = len(levels[0]), len(levels)
    wide, tall = (right - left) / columns, (bottom - TOP) / rows
    flat = [level for row in levels for level in row]
    most = max(range(LEVELS), key=flat.count)
    yield (
        f'<g class="heat" data-size="{columns} {rows}" data-most="{most}" fill="none" '
        f'transform="translate({left} {TOP}) scale({wide:.3f} {tall:.3f}) translate(0 0.5)" '
        'shape-rendering="crispEdges">'
        f'<path stroke="{HEAT[most]}" stroke-width="{rows}" d="M0 {(rows - 1) / 2:g}h{columns}"/>'
    )
    for level, colour in enumerate(HEAT):
        runs = "".join(_runs(levels, level)) if level != most else ""
        if runs:
            yield f'<path data-level="{level}" stroke="{colour}" d="{runs}"/>'
    yield "</g>"
    for tick in ticks(0, (rows - 1) * panel.row_step, whole=True):
        y = round(TOP + tall * (tick / panel.row_step + 0.5)) + 4
        yield f'<text x="{left - 6}" y="{y}" text-anchor="end">{number(tick)}</text>'
    yield from _under(0, columns - 1, lambda x: round(left + wide * (x + 0.5)))
    scale = "".join(f'<tspan fill="{colour}">■</tspan>' for colour in HEAT)
    yield (
        f'<text x="{right}" y="32" text-anchor="end">{number(low)} {scale} {number(high)}</text>'
    )
    middle = (TOP + bottom) // 2
    yield (
        f'<text transform="translate({left - 42} {middle}) rotate(-90)" text-anchor="middle">'
        f"{html.escape(panel.down)}</text>"
    )


def _span(values: list[float]) -> tuple[float, float]:
    """The range of colours: even on either side of 0 if both signs occur."""
    low, high = (float(f"{v:.{DIGITS}g}") for v in (min(values), max(values)))
    if low < 0 < high:
        high = max(-low, high)
        low = -high
    return (low, high) if high > low else (low - 1, high + 1)


def _level(value: float, low: float, high: float) -> int:
    return max(0, min(LEVELS - 1, round((LEVELS - 1) * (value - low) / (high - low))))


def _runs(levels: list[list[int]], wanted: int) -> Iterator[str]:
    """The runs of one level, row by row."""
    for y, row in enumerate(levels):
        x = 0
        while x < len(row):
            start = x
            while x < len(row) and row[x] == wanted:
                x += 1
            if x > start:
                yield f"M{start} {y}h{x - start}"
            x = max(x, start + 1)
