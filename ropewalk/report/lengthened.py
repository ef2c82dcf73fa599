"""The page of a lengthened model: loss by place for each method, and the table behind it."""

from __future__ import annotations

from typing import Any

from ropewalk.lab.trained.curves import Lengthened
from ropewalk.lab.trained.spread import spread
from ropewalk.report.document import cells, file_inside, json_inside, table, whole
from ropewalk.report.figures import Figure, Lines, svg
from ropewalk.report.html import Html, el
from ropewalk.report.lengthened_words import NOTHING, cell, columns, verdicts
from ropewalk.report.named import named


def document(found: Lengthened, source: str) -> dict[str, Any]:
    """All that was measured of the model at ``source``, as JSON has it."""
    return {"source": source, **found.as_dict()}


def page(found: Lengthened, source: str) -> str:
    """The page of the model at ``source``: one HTML file that asks for nothing elsewhere."""
    return whole(
        f"Longer texts: {named(source, found.model)}",
        el(
            "p",
            f"Mean loss in nats a token over {_texts(found)} ({', '.join(found.texts)}), by place "
            f"in {found.to:,} tokens. The model was trained to {found.native:,} tokens; nothing "
            "was tuned.",
        ),
        el(
            "div",
            Html(svg(_figure(found))),
            class_="scroll wide",
            tabindex=0,
            role="region",
            aria_label="Loss by place",
        ),
        el("ul", *(el("li", line) for line in verdicts(found))),
        _table(found),
        el(
            "p",
            "Two methods are apart where the 95 % interval (Student's t) of their differences, "
            "text by text, does not hold 0. The numbers: ",
            file_inside("extend.json", "application/json", json_inside(document(found, source))),
            ".",
            class_="quiet",
        ),
    )


def _texts(found: Lengthened) -> str:
    count = len(found.texts)
    return f"{count} text{'' if count == 1 else 's'}"


def _figure(found: Lengthened) -> Figure:
    places = [(start + stop) / 2 for start, stop in found.edges]
    curves = {c.name: [spread(b).mean for b in c.buckets] for c in found.curves}
    curves["each bucket alone"] = [spread(b).mean for b in found.alone]
    caption = (
        f"Loss by place in a text of {found.to:,} tokens; the native length is {found.native:,}."
    )
    return Figure(
        "Loss by place",
        caption,
        (
            Lines(
                "nats a token",
                "place in tokens, middle of each bucket",
                places,
                curves,
                marks={f"native length {found.native:,}": found.native},
            ),
        ),
    )


def _table(found: Lengthened) -> Html:
    rows = [
        cells(
            f"{start:,}–{stop:,}",
            *(f"{cell(found, c, b)} ± {spread(c.buckets[b]).sd:.3f}" for c in found.curves),
            *(NOTHING for _ in found.refused),
            f"{spread(found.alone[b]).mean:.3f} ± {spread(found.alone[b]).sd:.3f}",
        )
        for b, (start, stop) in enumerate(found.edges)
    ]
    caption = (
        "Mean loss and its standard deviation over texts (texts differ more than methods; compare "
        "along a row). ≈ not apart from the best (lowest) of the row. Alone: the untouched model "
        "reads these tokens as a short text of their own, which shows how hard they are."
    )
    return table(caption, ["tokens", *columns(found), "alone"], rows)
