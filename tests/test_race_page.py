"""The page of a race, its words and its tables: nothing leaves it, and it says what was found."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from race_records import MADE, race_of, record
from test_page import HOSTILE, browser  # noqa: F401  (a fixture)

from ropewalk.lab import outcome
from ropewalk.report.race import csv_text, parquet_bytes, render, rows
from ropewalk.report.race import words as said
from ropewalk.report.race.chart import Chart, Point, draw

Document = dict[str, Any]

VOID = {"meta", "link"}


def page_of(*records: Any) -> str:
    return render([outcome.document(group) for group in outcome.comparable(records)])


class Structure(HTMLParser):
    """Tags and the text between them; every element must be closed by its own tag."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)


def read(page: str) -> Structure:
    found = Structure()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


# --- nothing leaves the page ---------------------------------------------------------------------


@settings(max_examples=40)
@given(st.text(st.characters(codec=None), min_size=1, max_size=40) | st.sampled_from(HOSTILE[:10]))
def test_no_name_becomes_markup(text: str) -> None:
    calm, wild = (page_of(*race_of(**{name: 1.0, "rope": 2.0})) for name in ("calm", text))
    tags = [[tag for tag, _ in read(page).tags] for page in (calm, wild)]
    assert tags[0] == tags[1]
    attributes = [[sorted(attrs) for _, attrs in read(page).tags] for page in (calm, wild)]
    assert attributes[0] == attributes[1]
    wild.encode("utf-8")


def test_every_text_of_a_record_is_escaped() -> None:
    bad = "\"'></style><script>alert(1)</script><img src=x onerror=alert(1)>"
    lost = record(bad, 0, None, 1.0, unit=bad, made={**MADE, bad: bad}, diverged=bad,
                  config={"task": bad, "task_options": {bad: bad}, bad: bad})  # fmt: skip
    tags = {tag for tag, _ in read(page_of(lost)).tags}
    assert not tags & {"script", "img"}


def test_the_page_has_no_script_and_no_request() -> None:
    page = page_of(*race_of(rope=1.0, alibi=2.0))
    assert "default-src 'none'" in page
    assert len(page) < 60_000
    for tag, attrs in read(page).tags:
        assert tag != "script"
        assert not any(key.startswith("on") for key in attrs)
        for key in ("src", "href", "action"):
            assert (attrs.get(key) or "#").startswith(("#", "data:"))
    assert not re.search(r"url\(|@import", page)


def test_no_races_have_no_page() -> None:
    with pytest.raises(ValueError, match="one race at least"):
        render([])


# --- what it says --------------------------------------------------------------------------------


def test_the_page_holds_the_very_numbers() -> None:
    document = outcome.document(race_of(rope=1.0, alibi=2.0, none=1.05))
    found = read(render([document]))
    medians = [attrs["value"] for tag, attrs in found.tags if tag == "data"]
    ends = [attrs["data-ends"] for tag, attrs in found.tags if "data-ends" in attrs]
    assert medians == [repr(m) for curve in document["curves"] for m in curve["median"]]
    assert ends == [
        f"{low!r} {high!r}"
        for curve in document["curves"]
        for low, high in zip(curve["low"], curve["high"], strict=True)
    ]
    (data, table) = (attrs["href"] for tag, attrs in found.tags if "download" in attrs)
    assert data is not None
    assert table is not None
    assert json.loads(base64.b64decode(data.split(",")[1])) == document
    assert base64.b64decode(table.split(",")[1]).decode() == csv_text(document["trials"])


def test_ids_are_unique_and_what_refers_to_them_is_there() -> None:
    records = race_of(rope=1.0, alibi=2.0)
    page = page_of(*records, *(record("rope", s, 1.0, config={"steps": 7}) for s in range(3)))
    found = read(page).tags
    ids = [attrs["id"] for _, attrs in found if "id" in attrs]
    assert len(set(ids)) == len(ids)
    named = [attrs["aria-labelledby"] for _, attrs in found if "aria-labelledby" in attrs]
    assert {key for each in named for key in (each or "").split()} <= set(ids)
    links = [attrs["href"] or "" for tag, attrs in found if tag == "a" and "download" not in attrs]
    assert links == ["#race-1", "#race-2"]
    assert {link[1:] for link in links} <= set(ids)


def test_every_chart_is_told_in_words() -> None:
    found = read(page_of(*race_of(rope=1.0, alibi=2.0)))
    charts = [attrs for tag, attrs in found.tags if tag == "svg" and attrs.get("role") == "img"]
    assert len(charts) == 4  # by length, the loss, by position at two lengths
    assert sum(tag == "desc" for tag, _ in found.tags) == len(charts)
    assert any("rope has the best median, 1.100 [1.000, 1.200]" in text for text in found.text)


def test_verdicts_in_words() -> None:
    document = outcome.document(race_of(rope=1.0, alibi=2.0, none=1.05))
    assert said.verdicts(document)[0] == (
        "At 8: rope has the best median, 1.100 [1.000, 1.200]; told apart from it: alibi; "
        "not distinguishable from it: none."
    )
    apart = next(c for c in document["comparisons"] if c["b"] == "alibi")
    assert said.comparison(apart, "lower") == (
        "lower (better): the intervals do not overlap; by chance at most 1 in 10"
    )
    assert said.comparison(apart, "higher").startswith("lower (worse)")
    alone = outcome.document(race_of(rope=1.0))
    assert (
        said.verdicts(alone)[0] == "At 8: rope 1.100 [1.000, 1.200], with nothing to compare it to."
    )
    assert said.cautions(alone) == []


def test_cautions_in_words() -> None:
    two = outcome.document([record("a", 0, 1.0), record("a", 1, 1.0), record("b", 1, None)])
    found = said.cautions(two)
    assert "1 seed of an encoding: too few to tell anything apart; take 3." in found
    assert any(each.startswith("b lacks seed 0: pairs are taken") for each in found)
    assert "b, seed 1, diverged (the loss was not finite at step 3): it counts as worst." in found
    made = {**MADE, "machine": "arm64"}
    mixed = outcome.document([record("a", 0, 1.0), record("a", 1, 1.0, made=made)])
    assert any("different versions or machines" in each for each in said.cautions(mixed))
    three = outcome.document(race_of(rope=1.0, alibi=2.0))
    assert said.cautions(three) == [
        "2 of 2 comparisons are told apart. If all encodings were equal, chance alone would tell "
        "up to 0.2 apart."
    ]


def test_trials_that_diverged_are_drawn_and_told() -> None:
    records = [record("a", s, 1.0 + s, None) for s in range(3)]
    records += [record("b", s, None, None, loss=[]) for s in range(3)]
    page = page_of(*records)
    assert "At 16: most trials of every encoding diverged; there is no best." in page
    assert 'value=""' in page
    assert page.count('class="lost"') == 3
    higher = page_of(*(dict(each, better="higher") for each in records))
    assert "[−∞, −∞]" in higher


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.71828, "2.718"), (0.0, "0.000"), (-0.5, "−0.500"), (12345.6, "12,346"), (2e-5, "2.0e−05"),
     (None, "–")],
)  # fmt: skip
def test_numbers_in_words(value: float | None, text: str) -> None:
    assert said.figure(value) == text


# --- charts --------------------------------------------------------------------------------------


def places(chart: Chart) -> list[tuple[float, float]]:
    drawn = draw(chart, "k")
    assert drawn is not None
    marks = re.findall(r'class="(?:mark|lost)" d="M([\d.]+) ([\d.]+)m', drawn)
    return [(float(x), float(y)) for x, y in marks]


def test_marks_stand_where_their_numbers_are() -> None:
    points = [Point(n, y, y, y) for n, y in ((128, 2.0), (256, 3.0), (512, 2.5), (1024, 4.0))]
    found = places(Chart("t", "a", "x", "y", {"one": points}, [128, 256, 512, 1024], log=True))
    steps = [b[0] - a[0] for a, b in pairwise(found)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)  # doublings are even
    low, high = found[0][1], found[3][1]
    assert found[1][1] == pytest.approx((low + high) / 2, abs=0.2)
    assert found[2][1] == pytest.approx(low + (high - low) / 4, abs=0.2)


@pytest.mark.parametrize("worst", ["top", "bottom"])
def test_a_lost_point_lies_at_the_worst_edge(worst: str) -> None:
    points = [Point(1, 2.0, 1.0, 3.0), Point(2, None, 2.0, None)]
    (_, fine), (_, lost) = places(Chart("t", "a", "x", "y", {"one": points}, [1, 2], worst=worst))
    assert lost < fine if worst == "top" else lost > fine
    assert places(Chart("t", "a", "x", "y", {"one": points}, [1, 2])) == [(58.0, fine)]


def test_a_chart_of_nothing_is_none() -> None:
    assert draw(Chart("t", "a", "x", "y", {"one": [Point(1, None)]}, [1]), "k") is None


def test_many_curves_look_different() -> None:
    curves = {str(i): [Point(1, float(i)), Point(2, float(i))] for i in range(60)}
    drawn = draw(Chart("t", "a", "x", "y", curves, [1, 2]), "k")
    assert drawn is not None
    looks = re.findall(
        r'<g class="(c\d)"><path class="line" d="[^"]*"(?: stroke-dasharray="([\d ]+)")?></path>'
        r'<path class="mark" d="M[\d.]+ [\d.]+(m[^"]*)"', drawn,
    )  # fmt: skip
    assert len(looks) == 60
    assert len(set(looks)) == 60


# --- tables --------------------------------------------------------------------------------------


def test_rows_hold_every_field_and_score() -> None:
    records = [record("rope", 0, 1.25, None), record('a,b\n"c"', 1, 0.1, 2.0)]
    found = list(csv.DictReader(io.StringIO(csv_text(records))))
    assert [row["encoding"] for row in found] == ["rope"] * 2 + ['a,b\n"c"'] * 2
    assert [row["length"] for row in found] == ["8", "16"] * 2
    assert [row["score"] for row in found] == ["1.25", "", "0.1", "2.0"]
    assert json.loads(found[0]["lengths"]) == [8, 16]
    assert json.loads(found[0]["task_options"]) == {"k": 3}
    for key in records[0]["config"]:
        assert key in found[0]
    assert found[0]["made_torch"] == MADE["torch"]
    assert found[0]["unit"] == "bits"
    assert found[0]["diverged"] == "the loss was not finite at step 3"
    assert rows([]) == []
    odd = rows([record("\ud800.py:A", 0, 1)])[0]
    assert (odd["encoding"], odd["score"]) == (r"\ud800.py:A", 1.0)
    csv_text([record("\ud800.py:A", 0, 1)]).encode("utf-8")


def test_parquet_holds_the_same_rows() -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    records = [*race_of(rope=1.0), record("rope", 9, None, 2.0)]
    table = parquet.read_table(io.BytesIO(parquet_bytes(records)))
    assert table.to_pylist() == rows(records)
    assert str(table.schema.field("score").type) == "double"
    lost = parquet.read_table(io.BytesIO(parquet_bytes([record("a", 0, None)])))
    assert str(lost.schema.field("score").type) == "double"


# --- in a browser --------------------------------------------------------------------------------


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:  # noqa: F811
    """Opens a page from a file; at the end nothing may have gone wrong in any."""
    contexts, troubles = [], []

    def open_page(text: str, width: int = 1100, **options: Any) -> Any:
        place = tmp_path / f"race-{len(contexts)}.html"
        place.write_text(text, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda r: r.url == place.as_uri() or troubles.append(r.url[:80]))
        page.goto(place.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def test_the_table_shows_the_numbers_of_the_document(opened: Any) -> None:
    document = outcome.document(race_of(rope=1.0, alibi=2.0, **{HOSTILE[0]: 1.05}))
    page = opened(render([document]))
    for i, curve in enumerate(document["curves"]):
        row = page.locator("table.results tbody tr").nth(i)
        assert row.locator("th").inner_text() == curve["encoding"]
        for j in range(len(document["lengths"])):
            cell = row.locator("td").nth(j)
            assert float(cell.locator("data").get_attribute("value")) == curve["median"][j]
            assert cell.locator("data").inner_text() == f"{curve['median'][j]:.3f}"
            best = document["ranks"][j]["best"] == curve["encoding"]
            assert ("★" in cell.inner_text()) == best == (cell.locator("b").count() == 1)
    assert page.locator("svg[role=img]").count() == 4
    fold = page.locator("details")
    fold.locator("summary").click()
    assert fold.locator("tbody tr").count() == len(document["comparisons"])
    assert fold.locator("tbody tr").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_paper(opened: Any, scheme: str) -> None:
    page = opened(page_of(*race_of(rope=1.0, alibi=2.0)), color_scheme=scheme)
    ratios = page.evaluate(
        """() => {
          const canvas = document.createElement('canvas').getContext(
            '2d', {willReadFrequently: true});
          const light = (css) => {
            canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(v => v / 255)
              .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const style = getComputedStyle(document.documentElement);
          const paper = light(style.getPropertyValue('--paper'));
          return ['--ink', '--quiet', ...[0, 1, 2, 3, 4, 5, 6, 7].map(i => `--c${i}`)].map(name => {
            const own = light(style.getPropertyValue(name));
            return (Math.max(own, paper) + 0.05) / (Math.min(own, paper) + 0.05);
          });
        }"""
    )
    assert min(ratios) >= 4.5


@pytest.mark.parametrize("width", [360, 1100])
def test_only_boxes_scroll_sideways(opened: Any, width: int) -> None:
    page = opened(page_of(*race_of(rope=1.0, **{"path/to/mine.py:" + "X" * 90: 2.0})), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.locator(".scroll")
    assert boxes.count() == page.locator(".scroll[tabindex='0'][role=region][aria-label]").count()


def test_print_shows_what_is_folded(opened: Any) -> None:
    page = opened(page_of(*race_of(rope=1.0, alibi=2.0)), color_scheme="dark")
    cell = page.locator("details tbody tr").first
    assert not cell.is_visible()
    page.emulate_media(media="print")
    assert cell.is_visible()
    assert page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
