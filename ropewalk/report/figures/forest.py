"""A forest of intervals: a number with its interval on each row, against the margin of its row.

Rows have units of their own, so each is drawn on its own scale: the margin stands in one column for
all, and the farthest end of a row lies on the edge on its side.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from ropewalk.report.figures.svg import STYLE, WIDTH, number

ROW, TOP, BOTTOM = 44, 30, 16
MIDDLE, REACH, ASIDE = 380, 340, 110
"""Where the margin stands, how far an interval may lie from it, and the room of a verdict."""

INK = {"reproduced": "#2a9d6f", "refuted": "#cc4f62", "undecided": "#8a8a8a"}
SIGN = {"reproduced": "✓", "refuted": "✗", "undecided": "?"}


@dataclass(frozen=True)
class Row:
    """One statement.

    Args:
        words: what was said.
        low, median, high: what was measured.
        margin: on one side of which it was said to lie.
        side: ``"below"`` or ``"above"`` the margin.
        verdict: a key of ``INK``.
    """

    words: str
    low: float
    median: float
    high: float
    margin: float
    side: str
    verdict: str


def forest(title: str, caption: str, rows: Sequence[Row]) -> str:
    """The rows as one SVG document.

    Raises:
        ValueError: there is no row.
    """
    if not rows:
        raise ValueError(f"{title}: a figure needs a row")
    height = TOP + ROW * len(rows) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-labelledby="title about"><title id="title">{html.escape(title)}</title>',
        f'<desc id="about">{html.escape(caption)}</desc><style>{STYLE}</style>',
        f'<rect class="p" width="{WIDTH}" height="{height}"/>',
        f'<path class="g" d="M{MIDDLE} {TOP - 8}V{height - BOTTOM}"/>',
        f'<text x="{MIDDLE}" y="16" text-anchor="middle">the margin of each row</text>',
    ]
    for place, row in enumerate(rows):
        parts += _row(row, TOP + ROW * place)
    return "\n".join([*parts, "</svg>", ""])


def _row(row: Row, top: int) -> list[str]:
    farthest = max(abs(row.low - row.margin), abs(row.high - row.margin)) or 1.0

    def across(value: float) -> int:
        return round(MIDDLE + REACH * (value - row.margin) / farthest)

    y, ink = top + 28, INK[row.verdict]
    said = 1 if row.side == "above" else -1
    low, high = across(row.low), max(across(row.high), across(row.low) + 1)
    return [
        f'<text class="t" x="12" y="{top + 12}">{html.escape(row.words)}</text>',
        f'<text x="{WIDTH - 12}" y="{top + 12}" text-anchor="end" fill="{ink}">'
        f"{SIGN[row.verdict]} {row.verdict}</text>",
        f'<path fill="none" stroke="{ink}" stroke-width="3" d="M{low} {y}H{high}"/>',
        f'<circle fill="{ink}" cx="{across(row.median)}" cy="{y}" r="4"/>',
        f'<path class="g" d="M{MIDDLE} {y}h{said * 12}m{-said * 4} -3l{said * 4} 3l{-said * 4} 3" '
        'fill="none"/>',
        f'<text x="{WIDTH - ASIDE}" y="{top + 12}" text-anchor="end">{number(row.median)} '
        f"[{number(row.low)}, {number(row.high)}], margin {number(row.margin)}</text>",
    ]
