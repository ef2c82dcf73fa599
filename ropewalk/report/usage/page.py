"""The page of a usage: one HTML file without scripts that asks nothing of any network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from ropewalk.lab.trained.usage_words import signed
from ropewalk.report.document import cells, table, whole
from ropewalk.report.figures.scale import number
from ropewalk.report.html import Html, el, join, name
from ropewalk.report.named import named
from ropewalk.report.race.chart import Chart, Point, draw, swatch
from ropewalk.report.usage.heat import heat

Document = Mapping[str, Any]

MARK = "*"


def page(document: Document) -> str:
    """The page of a document of :mod:`ropewalk.lab.trained.usage_document`, with its ``source``."""
    title = f"Usage: {named(document['source'], document['model'])}"
    return whole(
        title,
        el("p", _what(document)),
        el("ul", *(el("li", text) for text in document["reading"]), class_="verdicts"),
        *_cautions(document),
        el("h2", "Loss without a band of pairs"),
        *_curves(document),
        _bands(document),
        el("h2", "p-RoPE by truncation"),
        el("p", "The slowest pairs have frequency 0; the share p of the fastest still turns."),
        _truncated(document),
        el("h2", "Norms by layer and pair"),
        el("p", "Mean over tokens and heads, before the rotation. Norm is not use."),
        *_maps(document),
        el("h2", "Literature on both sides"),
        el("ul", *(_paper(entry) for entry in document["literature"])),
    )


def _what(document: Document) -> Html:
    losses = ", ".join(
        f"{row['loss']['mean']:.3f} nats at {row['length']:,} tokens"
        for row in document["untouched"]
    )
    turning = document["layers"] - len(document["layers_that_do_not_rotate"])
    return join(
        f"{turning} of {document['layers']} layers rotate. Texts: ",
        *[part for text in document["texts"] for part in (", ", name(text))][1:],
        f" — loss of the untouched model: {losses}.",
    )


def _cautions(document: Document) -> Iterator[Html]:
    if document["cautions"]:
        yield el("ul", *(el("li", text) for text in document["cautions"]), class_="cautions")


def _paper(entry: Mapping[str, Any]) -> Html:
    address = f"https://arxiv.org/abs/{entry['arxiv']}"
    link = el("a", f"arXiv {entry['arxiv']}", href=address, rel="noreferrer")
    words = f"{entry['authors']} ({entry['year']}), {entry['title']}: {entry['claim']} "
    return el("li", el("b", f"{entry['side'].capitalize()}. "), words, link)


# --- losses --------------------------------------------------------------------------------------


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["band"] for row in rows))


def _curves(document: Document) -> Iterator[Html]:
    """For each treatment a curve over the bands for each length."""
    for treatment in dict.fromkeys(row["treatment"] for row in document["bands"]):
        rows = [row for row in document["bands"] if row["treatment"] == treatment]
        names = _names(rows)
        curves = {
            f"{length:,} tokens": [
                _point(names.index(row["band"]) + 1, row) for row in rows if row["length"] == length
            ]
            for length in document["lengths"]
        }
        title = f"Change of the loss, band {treatment}, nats a token"
        chart = Chart(
            title=title,
            about=" ".join(f"{row['band']}: {_cell(row)}." for row in rows),
            across="band, 1 is the fastest",
            up="nats",
            curves=curves,
            at=range(1, len(names) + 1),
        )
        yield _figure(draw(chart, f"{treatment}-chart"), title, list(curves))


def _point(place: int, row: Mapping[str, Any]) -> Point:
    mean, sd = row["change"]["mean"], row["change"]["sd"]
    return Point(place, mean, mean - sd, mean + sd) if sd else Point(place, mean)


def _figure(drawn: Html | None, title: str, labels: Sequence[str]) -> Html:
    legend = (el("li", swatch(i), label) for i, label in enumerate(labels))
    return el(
        "figure",
        el("ul", *legend, class_="legend", aria_label="Legend"),
        el("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=title),
        el("figcaption", f"{title}; bands show the spread over passages."),
    )


def _bands(document: Document) -> Html:
    columns = [
        (how, n)
        for how in dict.fromkeys(row["treatment"] for row in document["bands"])
        for n in document["lengths"]
    ]
    head = ["pairs", *(f"{how} at {n:,}" for how, n in columns)]
    return _table(head, document["bands"], columns)


def _truncated(document: Document) -> Html:
    rows = document["p_rope"]
    columns = [(rows[0]["treatment"], n) for n in document["lengths"]] if rows else []
    return _table(["p-RoPE", *(f"at {n:,}" for _, n in columns)], rows, columns)


def _table(head: Sequence[str], rows: Sequence[Mapping[str, Any]], columns: Sequence[Any]) -> Html:
    found = {(each["band"], each["treatment"], each["length"]): _cell(each) for each in rows}
    body = [cells(band, *(found[band, how, n] for how, n in columns)) for band in _names(rows)]
    caption = (
        "Change of the loss in nats a token, mean ± standard deviation over passages; "
        f"{MARK} beyond the spread: the 95 % interval of the mean (Student's t) does not hold 0."
    )
    return table(caption, head, body, "results")


def _cell(row: Mapping[str, Any]) -> str:
    change = row["change"]
    return f"{signed(change['mean'])} ± {change['sd']:.4f}{MARK if row['beyond_spread'] else ''}"


# --- norms ---------------------------------------------------------------------------------------


def _maps(document: Document) -> Iterator[Html]:
    titles = {"q": "‖q‖", "k": "‖k‖", "product": "‖q‖‖k‖"}
    for what, title in titles.items():
        rows, missing = _rows(document, what)
        drawn = heat(title, rows, missing, f"heat-{what}")
        region = el("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=title)
        yield el("figure", region, el("figcaption", f"{title}, layer by pair; {_largest(rows)}"))


def _rows(
    document: Document, what: str
) -> tuple[list[tuple[str, list[float] | None]], dict[str, str]]:
    """A row for each attention, pairs from the fastest on, and why some have no numbers."""
    orders = {
        (layer, len(group["inv_freq"])): sorted(
            range(len(group["inv_freq"])), key=lambda c, own=group["inv_freq"]: -own[c]
        )
        for group in document["groups"]
        for layer in group["layers"]
    }
    rows: list[tuple[str, list[float] | None]] = []
    missing = {str(layer): "does not rotate" for layer in document["layers_that_do_not_rotate"]}
    for layer in range(document["layers"]):
        own = [a for a in document["attentions"] if a["layer"] == layer]
        rows += [(str(layer), None)] if not own else []
        for attention in own:
            label = str(layer) if len(own) == 1 else f"{layer}.{attention['part']}"
            values = _values(attention, what)
            if values is None:
                missing[label] = "reads the keys of another layer"
                rows.append((label, None))
            else:
                rows.append((label, [values[c] for c in orders[layer, len(values)]]))
    return rows, missing


def _values(attention: Mapping[str, Any], what: str) -> list[float] | None:
    """Averaged over heads, of the product over those of q."""
    q, k = attention["q"], attention["k"]
    if what == "q":
        heads = q
    elif k is None:
        return None
    elif what == "k":
        heads = k
    else:
        each = len(q) // len(k)
        heads = [[a * b for a, b in zip(q[h], k[h // each], strict=True)] for h in range(len(q))]
    return [fmean(column) for column in zip(*heads, strict=True)]


def _largest(rows: Sequence[tuple[str, Sequence[float] | None]]) -> str:
    found = [(v, label, c) for label, row in rows for c, v in enumerate(row or ())]
    if not found:
        return "no layer has one"
    value, label, column = max(found)
    return f"the largest, {number(value)}, in layer {label} at place {column} of the pairs"
