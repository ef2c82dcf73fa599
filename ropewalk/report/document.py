"""What pages share: one HTML file with no script that asks nothing of any network.

A content security policy forbids scripts and every request, whatever a name from a file may hold.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from ropewalk.report.html import Html, el, join

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
POLICY += "form-action 'none'"


def whole(title: str, *body: str | None) -> str:
    """One HTML document, to be written as UTF-8."""
    head = join(
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        Html('<meta name="referrer" content="no-referrer">'),
        el("title", f"{title} · ropewalk"),
        Html('<link rel="icon" href="data:,">'),
        el("style", Html(_styles())),
    )
    inside = join(head, el("body", el("main", el("h1", title), *body)))
    return f'<!DOCTYPE html>\n<html lang="en">\n{inside}\n</html>\n'


def table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[Html]], kind: str | None = None
) -> Html:
    """A table that scrolls sideways where it must; the first cell of a row is its name."""
    made = el(
        "table",
        el("thead", el("tr", *(el("th", text, scope="col") for text in head))),
        el("tbody", *(el("tr", *row) for row in rows)),
        class_=kind,
        aria_label=caption,
    )
    scrolling = el("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)
    return el("figure", el("figcaption", caption), scrolling)


def cells(name: str, *cells: str) -> list[Html]:
    """A row of :func:`table` by its words."""
    return [el("th", name, scope="row"), *(el("td", cell) for cell in cells)]


def json_inside(numbers: Mapping[str, Any]) -> str:
    """Numbers as strict JSON in ASCII, for a file inside a page.

    Raises:
        ValueError: one is NaN or infinite.
    """
    return json.dumps(numbers, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def file_inside(name: str, kind: str, text: str) -> Html:
    """A link to a file that the page carries."""
    content = base64.b64encode(text.encode("utf-8", "backslashreplace")).decode("ascii")
    return el("a", name, download=name, href=f"data:{kind};base64,{content}")


def _styles() -> str:
    return files("ropewalk.report").joinpath("assets/page.css").read_text(encoding="utf-8").strip()
