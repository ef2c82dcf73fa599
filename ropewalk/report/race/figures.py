"""The figures of a race: score by length, training loss, and score by position."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ropewalk.report.html import Html, el, name
from ropewalk.report.race import words
from ropewalk.report.race.chart import Chart, Point, draw, swatch

Document = Mapping[str, Any]

MOST_POINTS = 256
"""Of a curve by position; a longer one is drawn as means over equal runs."""


def by_length(document: Document, key: str) -> Html | None:
    """Medians with their intervals over the lengths."""
    lengths, trained = document["lengths"], document["train_length"]
    curves = {
        curve["encoding"]: [
            Point(n, *(curve[side][i] for side in ("median", "low", "high")))
            for i, n in enumerate(lengths)
        ]
        for curve in document["curves"]
    }
    chart = Chart(
        title=f"{document['unit']} by length",
        about=" ".join(words.verdicts(document)),
        across="length read",
        up=document["unit"],
        curves=curves,
        at=lengths,
        log=True,
        rule=(trained, f"trained at {trained:,}"),
        worst="top" if document["better"] == "lower" else "bottom",
    )
    lost = any(None in curve["median"] for curve in document["curves"])
    caption = (
        f"Lines: medians over seeds. Bands: their intervals. {document['better'].capitalize()} is "
        f"better.{' A cross: diverged.' if lost else ''} The table below has the numbers."
    )
    return _figure(chart, key, caption)


def training(document: Document, key: str) -> Html | None:
    """The training loss in each tenth of the steps."""
    steps = document["config"]["steps"]
    found = _by_encoding(document, lambda record: record["loss"])
    curves = {encoding: _over_seeds(_tenths(own, steps)) for encoding, own in found.items()}
    chart = Chart(
        title="Training loss by step",
        about="Median training loss of each encoding: " + _from_to(curves),
        across="step",
        up="nats",
        curves=curves,
        at=_quarters(steps),
    )
    caption = "The mean loss of each tenth of the steps: median over seeds, and from the lowest "
    caption += "to the highest seed. A trial that diverged is drawn up to there."
    return _figure(chart, f"{key}-loss", caption)


def by_position(document: Document, key: str) -> Iterator[Html | None]:
    """For each length with such detail, the score by position in the text read."""
    trained = document["train_length"]
    for n in document["lengths"]:
        found = _by_encoding(document, lambda record, n=n: record["curves"].get(str(n), []))
        curves = {encoding: _over_seeds(_along(own, n)) for encoding, own in found.items()}
        if max(map(len, curves.values()), default=0) < 2:
            continue
        chart = Chart(
            title=f"By position, read at {n:,}",
            about=f"Median by position of each encoding at length {n:,}: {_from_to(curves)}",
            across=f"position, read at {n:,}",
            up="score at a position",
            curves=curves,
            at=_quarters(n),
            rule=(trained, "trained length") if trained < n else None,
        )
        caption = "What the task scores at each position: median over seeds, and from the lowest "
        caption += "to the highest seed."
        if max(len(curve) for own in found.values() for curve in own) > MOST_POINTS:
            caption += f" Drawn as the means of {MOST_POINTS} equal runs."
        yield _figure(chart, f"{key}-at-{n}", caption)


def _quarters(whole: int) -> list[int]:
    return sorted({round(whole * i / 4) for i in range(5)})


def _figure(chart: Chart, key: str, caption: str) -> Html | None:
    drawn = draw(chart, f"{key}-chart")
    if drawn is None:
        return None
    legend = [el("li", swatch(i), name(label)) for i, label in enumerate(chart.curves)]
    return el(
        "figure",
        el("ul", *legend, class_="legend", aria_label="Legend"),
        el("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=chart.title),
        el("figcaption", caption),
    )


def _by_encoding(document: Document, read) -> dict[str, list[Sequence[float | None]]]:
    """What ``read`` finds in each record, by encoding, as the curves list them."""
    found = {curve["encoding"]: [] for curve in document["curves"]}
    for record in document["trials"]:
        found[record["config"]["encoding"]].append(read(record))
    return found


Placed = dict[float, list[float]]
"""x → the finite values of the seeds there."""


def _tenths(losses: Sequence[Sequence[float | None]], steps: int) -> Placed:
    """Each mean at the end of its part of the steps; a trial that diverged has fewer parts."""
    most = max(map(len, losses), default=0)
    return _placed(losses, lambda i, _: round((i + 1) * steps / most))


def _along(curves: Sequence[Sequence[float | None]], length: int) -> Placed:
    """Each value at the middle of the positions it stands for."""
    thin = [_thinned(curve) for curve in curves]
    return _placed(thin, lambda i, count: (i + 0.5) * length / count)


def _placed(curves: Sequence[Sequence[float | None]], where) -> Placed:
    found: Placed = {}
    for curve in curves:
        for i, value in enumerate(curve):
            if value is not None and math.isfinite(value):
                found.setdefault(where(i, len(curve)), []).append(value)
    return dict(sorted(found.items()))


def _thinned(curve: Sequence[float | None]) -> list[float | None]:
    if len(curve) <= MOST_POINTS:
        return list(curve)
    edges = [i * len(curve) // MOST_POINTS for i in range(MOST_POINTS + 1)]
    parts = [curve[a:b] for a, b in pairwise(edges)]
    return [None if None in part else statistics.fmean(v for v in part if v is not None)
            for part in parts]  # fmt: skip


def _over_seeds(placed: Placed) -> list[Point]:
    return [Point(x, statistics.median(v), min(v), max(v)) for x, v in placed.items()]


def _from_to(curves: Mapping[str, Sequence[Point]]) -> str:
    """The first and the last value of each curve, in words."""
    return "; ".join(
        f"{encoding} {words.figure(points[0].y)} at {points[0].x:,.0f}, "
        f"{words.figure(points[-1].y)} at {points[-1].x:,.0f}"
        for encoding, points in curves.items()
        if points
    )
