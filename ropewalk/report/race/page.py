"""The page of one race or several.

Charts are drawn here, so the page is words, tables and SVG; the numbers are links inside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.lab.statistics import LEAST_SEEDS, MOST_CHANCE
from ropewalk.report.document import file_inside, json_inside, table, whole
from ropewalk.report.html import Html, el, join, name
from ropewalk.report.race import figures, words
from ropewalk.report.race.tables import csv_text

Document = Mapping[str, Any]


def render(documents: Sequence[Document]) -> str:
    """The page of some races.

    Args:
        documents: of :func:`ropewalk.lab.outcome.document`, one or more.

    Returns:
        One HTML document, to be written as UTF-8.

    Raises:
        ValueError: no documents.
    """
    if not documents:
        raise ValueError("documents=[] must hold one race at least")
    first, several = documents[0], len(documents) > 1
    title = words.counted(len(documents), "race") if several else f"Race: {words.title(first)}"
    return whole(
        title,
        _contents(documents) if several else None,
        *(_race(each, f"race-{i}", several) for i, each in enumerate(documents, 1)),
        el("footer", _method(), _numbers(documents)),
    )


def _contents(documents: Sequence[Document]) -> Html:
    links = (
        el("li", el("a", words.title(document), href=f"#race-{i}"), f": {words.what(document)}")
        for i, document in enumerate(documents, 1)
    )
    return el("nav", el("ol", *links), aria_label="Races")


def _race(document: Document, key: str, several: bool) -> Html:
    return el(
        "section",
        el("h2", words.title(document), id=f"{key}-title") if several else None,
        el("p", words.what(document)),
        el("ul", *(el("li", text) for text in words.verdicts(document)), class_="verdicts"),
        _cautions(document),
        el("h3", "Score by length"),
        figures.by_length(document, key),
        _results(document),
        _comparisons(document),
        *_optional("Training loss", figures.training(document, key)),
        *_optional("Score by position", *figures.by_position(document, key)),
        el("h3", "What was run"),
        *_run(document),
        id=key,
        aria_labelledby=f"{key}-title" if several else None,
    )


def _optional(heading: str, *found: Html | None) -> list[Html]:
    drawn = [each for each in found if each is not None]
    return [el("h3", heading), *drawn] if drawn else []


def _cautions(document: Document) -> Html | None:
    found = words.cautions(document)
    return el("ul", *(el("li", text) for text in found), class_="cautions") if found else None


# --- tables --------------------------------------------------------------------------------------


def _results(document: Document) -> Html:
    rows = [
        [
            el("th", name(curve["encoding"]), scope="row"),
            *(_result(document, curve, place) for place in range(len(document["lengths"]))),
        ]
        for curve in document["curves"]
    ]
    caption = (
        f"Median and interval over seeds, {document['unit']}, {document['better']} is better; "
        f"below them the mean rank. {words.BEST} best, {words.ALIKE} not distinguishable from it."
    )
    head = ["encoding", *(f"at {n:,}" for n in document["lengths"])]
    return table(caption, head, rows, "results")


def _result(document: Document, curve: Mapping[str, Any], place: int) -> Html:
    rank = document["ranks"][place]
    encoding, median = curve["encoding"], curve["median"][place]
    shown, span = words.interval(curve, place, words.worst(document))
    number = el("data", shown, value="" if median is None else repr(median))
    best = encoding == rank["best"] and median is not None
    alike = encoding in rank["not_distinguishable_from_best"]
    mean = rank["mean_rank"].get(encoding)
    ends = (repr(curve[end][place]) for end in ("low", "high"))
    return el(
        "td",
        el("b", number) if best else number,
        _sign(words.BEST, "best") if best else _sign(words.ALIKE, "like the best") if alike else "",
        el("small", span, data_ends=" ".join(ends)),
        None if mean is None else el("small", f"rank {mean:.3g}"),
        class_="best" if best else None,
    )


def _sign(sign: str, meaning: str) -> Html:
    return join(
        " ", el("span", sign, aria_hidden="true"), el("span", f"({meaning})", class_="unseen")
    )


def _comparisons(document: Document) -> Html | None:
    if not document["comparisons"]:
        return None
    lost = words.worst(document)
    rows = [
        [
            el("th", f"{each['length']:,}", scope="row"),
            el("td", name(each["a"])),
            el("td", name(each["b"])),
            el("td", _difference(each["difference"])),
            el("td", f"{each['pairs']}"),
            el("td", words.comparison(each, document["better"])),
        ]
        for each in document["comparisons"]
    ]
    caption = f"a against b; differences a − b seed by seed, {document['unit']}"
    if any(None in (each["difference"] or {}).values() for each in document["comparisons"]):
        caption += f"; – without bound, as a trial diverged ({lost})"
    head = ("length", "a", "b", "difference", "pairs", "verdict")
    summary = f"Every two encodings ({words.counted(len(rows), 'comparison')})"
    return el("details", el("summary", summary), table(caption, head, rows, "pairs"))


def _difference(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "no common seed"
    median, low, high = (words.figure(found[key]) for key in ("median", "low", "high"))
    return f"{median} [{low}, {high}]"


# --- what was run --------------------------------------------------------------------------------


def _run(document: Document) -> list[Html]:
    config = {key: value for key, value in document["config"].items() if value != {}}
    shown = [
        item
        for key, value in config.items()
        for item in (el("dt", key.replace("_", " ")), el("dd", _plain(value)))
    ]
    origins = [
        el("li", f"{words.counted(each['trials'], 'trial')}: {_pairs(each, but='trials')}")
        for each in document["origins"]
    ]
    racers = [
        [
            el("th", name(curve["encoding"]), scope="row"),
            el("td", words.listed(curve["seeds"])),
            el("td", words.listed([f"{n:,}" for n in _parameters(document, curve["encoding"])])),
        ]
        for curve in document["curves"]
    ]
    ran = table("Who ran", ("encoding", "seeds", "parameters"), racers, "racers")
    return [el("dl", *shown), ran, el("p", "Made with"), el("ul", *origins)]


def _parameters(document: Document, encoding: str) -> list[int]:
    return sorted(
        {t["parameters"] for t in document["trials"] if t["config"]["encoding"] == encoding}
    )


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return _pairs(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _pairs(value: Mapping[str, Any], but: str = "") -> str:
    return ", ".join(f"{key} {item}" for key, item in value.items() if key != but)


def _method() -> Html:
    return el(
        "p",
        "Intervals: 95 % percentile bootstrap of the median over seeds, counted exactly; with up "
        "to five seeds it is their range. Two encodings are told apart where, with at least "
        f"{LEAST_SEEDS} seeds each, their intervals do not overlap, or where the interval of their "
        "differences, seed by seed, does not hold 0; and only where equal encodings would come "
        f"out so at most once in {MOST_CHANCE.denominator} times. Everything else is called not "
        "distinguishable, which does not mean equal. A small model on one task is a hint, not a "
        "ranking.",
        class_="quiet",
    )


def _numbers(documents: Sequence[Document]) -> Html:
    """The numbers themselves, as files inside the page."""
    found = documents[0] if len(documents) == 1 else {"kind": "races", "races": list(documents)}
    records = [record for document in documents for record in document["trials"]]
    text = json_inside(found)
    links = (
        file_inside("race.json", "application/json", text),
        file_inside("race.csv", "text/csv", csv_text(records)),
    )
    return el("p", "The numbers in this page: ", links[0], ", ", links[1], ".", class_="numbers")
