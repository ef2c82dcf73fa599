"""A measurement of low precision as one page with one figure, which asks nothing of any network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ropewalk.report.document import cells, table, whole
from ropewalk.report.figures.scale import number
from ropewalk.report.html import Html, el
from ropewalk.report.named import named
from ropewalk.report.precision_words import change, contrasts, judged, signed

if TYPE_CHECKING:
    from ropewalk.lab.trained.precision_rows import Precision, Row

WIDTH, ROW, TOP, BOTTOM, LEFT, RIGHT = 760, 22, 26, 44, 284, 16
LEAST = 1e-4
"""Nats below which the axis is linear: less is nothing."""


def page(found: Precision, source: str) -> str:
    """The page of a measurement of the model at ``source``; one HTML document."""
    count = len(found.passages)
    return whole(
        f"Low precision: {named(source, found.model)}",
        el(
            "p",
            f"In {found.arithmetic}, {count} passage{'' if count == 1 else 's'} of "
            f"{found.length:,} tokens "
            f"({', '.join(found.passages)}). Loss of the untouched model: "
            f"{number(found.own[0].mean)} nats a token.",
        ),
        el("ul", *(el("li", note) for note in found.notes), class_="cautions")
        if found.notes
        else None,
        _figure(found),
        *_differences(found),
        el("h2", "Keys"),
        _table(("keys", "error of keys", "nats", "change"), found.keys.values()),
        *_tables(found),
        el("footer", el("p", judged(found), ".", class_="quiet")),
    )


# --- tables --------------------------------------------------------------------------------------


def _differences(found: Precision) -> Iterator[Html]:
    for heading, each in contrasts(found).items():
        yield el("h3", heading)
        yield el("ul", *(el("li", line) for line in each))


def _tables(found: Precision) -> list[Html]:
    if not found.tables:
        return []
    return [el("h2", "Rotary tables"), _table(("tables", "nats", "change"), found.tables.values())]


def _table(heads: tuple[str, ...], rows: Iterable[Row]) -> Html:
    body = [
        cells(
            str(each.variant),
            *([] if each.error is None else [number(each.error.mean)]),
            number(each.loss.mean),
            change(each.change, each.beyond),
        )
        for each in rows
    ]
    caption = "Loss and its change in nats a token, means over passages ± standard deviation"
    return table(caption, heads, body)


# --- figure --------------------------------------------------------------------------------------


def _figure(found: Precision) -> Html:
    caption = (
        "Change of loss against the untouched model at the same positions, in nats a token: the "
        "dot is the mean over passages, filled if its 95 % interval (Student's t) does not hold 0; "
        "the line reaches from the least to the largest passage. The axis is linear within "
        f"{number(LEAST)} and logarithmic beyond."
    )
    keys = (
        el("span", "● before rotation, or at position 0", class_="key c0"),
        el("span", "● after rotation, or farther on", class_="key c1"),
    )
    drawn = _chart(found.rows)
    return el(
        "figure",
        el("p", *keys),
        el("div", drawn, class_="scroll", tabindex=0, role="region", aria_label="Changes"),
        el("figcaption", caption),
    )


def _chart(rows: Sequence[Row]) -> Html:
    height = TOP + ROW * len(rows) + BOTTOM
    values = [v for row in rows for v in row.change.values]
    low, high = (_bent(f([0.0, *values])) for f in (min, max))
    low, high = min(low, -_bent(LEAST)), max(high, _bent(LEAST))
    room = WIDTH - LEFT - RIGHT

    def across(value: float) -> float:
        return round(LEFT + room * (_bent(value) - low) / (high - low), 1)

    parts = [*_ticks(low, high, height, across)]
    for place, row in enumerate(rows):
        parts += _row(row, TOP + ROW * place + ROW // 2, across)
    parts.append(
        el("text", "change, nats a token", x=LEFT + room // 2, y=height - 6, text_anchor="middle")
    )
    return el(
        "svg", *parts, class_="chart", viewBox=f"0 0 {WIDTH} {height}", role="img",
        aria_label="Change of loss of every variant",
    )  # fmt: skip


def _bent(value: float) -> float:
    return math.asinh(value / LEAST)


def _ticks(low: float, high: float, height: int, across) -> Iterator[Html]:
    powers = [LEAST * 10**n for n in range(1, 12)]  # the least would stand on the 0
    shown = [v for v in (0.0, *powers, *(-p for p in powers)) if low <= _bent(v) <= high]
    for value in shown:
        x = across(value)
        kind = "grid" if value else "zero"
        yield el("path", class_=kind, d=f"M{x} {TOP - 6}V{height - BOTTOM + 4}")
        word = signed(value).removeprefix("+")
        yield el("text", word, x=x, y=height - BOTTOM + 20, text_anchor="middle")


def _row(row: Row, y: int, across) -> list[Html]:
    later = getattr(row.variant, "when", "") == "after" or getattr(row.variant, "first", 0) > 0
    ends = min(row.change.values), max(row.change.values)
    kind = "dot" if row.beyond else "dot hollow"
    about = f"{row.variant}: {change(row.change, row.beyond)}"
    return [
        el("text", str(row.variant), x=LEFT - 12, y=y + 4, text_anchor="end", class_="name"),
        el(
            "g",
            el("title", about),
            el("path", class_="each", d=f"M{across(ends[0])} {y}H{across(ends[1])}"),
            el("circle", class_=kind, cx=across(row.change.mean), cy=y, r=4),
            class_="c1" if later else "c0",
        ),
    ]
