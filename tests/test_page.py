"""The page of the walk: what it refuses, what it escapes, and how it behaves in a browser."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walk_payload import full_payload

from ropewalk.report.page import SCRIPTS, STEPS, STYLES, embed_json, render_walk

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=\"alert(1); document.title='broken'\">",
    "line\u2028and\u2029paragraph",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd",
    "👩‍👩‍👧‍👦🇩🇪",
    "{{script}}{{payload}}",
    "</SCRIPT ><!--",
    "\ud800",
    "'\"`${alert(1)}",
    "x" * 400,
    "   ",
    "",
]
BAD_TEXT = " ".join(HOSTILE[:7])


# ---- the text of the page, without a browser -----------------------------------------------------


class Blocks(HTMLParser):
    """The script elements of a page, each with its attributes and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[dict[str, str | None], str]] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.inside = True
            self.found.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self.inside:
            attrs, text = self.found[-1]
            self.found[-1] = (attrs, text + data)


def blocks(page: str) -> list[tuple[dict[str, str | None], str]]:
    parser = Blocks()
    parser.feed(page)
    parser.close()
    return parser.found


def payload_with_text(*texts: str) -> dict[str, Any]:
    """Every piece of text that a user or a config can reach is one of ``texts``, in turn."""
    text = texts[0]
    payload = full_payload([*texts, " dog", text])
    payload["title"] = payload["source"] = payload["version"] = text
    for i, step in enumerate(payload["steps"]):
        text = texts[i % len(texts)]
        step["title"] = step["question"] = step["verdict"] = text
        step["paragraphs"] = [text]
        step["equations"] = [text, *step["equations"]]
        step["labels"] = dict.fromkeys(step["figures"], text)
    payload["scorecard"][text] = payload["scorecard"].pop("rope")
    payload["race"]["task"] = payload["race"]["unit"] = text
    payload["race"]["curves"][0]["encoding"] = text
    return payload


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_embedded_json_is_inert_and_means_the_same(value: object) -> None:
    text = embed_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert text.isascii()
    assert json.loads(text) == value


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(codec=None), max_size=60) | st.sampled_from(HOSTILE))
def test_no_text_leaves_its_data_block(text: str) -> None:
    payload = payload_with_text(text)
    (data_attrs, data), (code_attrs, code) = blocks(render_walk(payload))
    assert data_attrs == {"type": "application/json", "id": "payload"}
    assert code_attrs == {}
    assert json.loads(data) == payload
    assert code == blocks(render_walk(full_payload()))[1][1]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_with_its_path(number: float) -> None:
    payload = full_payload()
    payload["steps"][4]["drawing"]["nearest"][2]["distance"] = number
    with pytest.raises(ValueError, match=re.escape("payload.steps[4].drawing.nearest[2].distance")):
        render_walk(payload)


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object(), complex(1, 2)])
def test_a_value_without_a_place_in_json_is_refused_with_its_path(value: object) -> None:
    payload = full_payload()
    payload["steps"][0]["drawing"]["equal"] = [value]
    with pytest.raises(TypeError, match=re.escape("payload.steps[0].drawing.equal[0] is a ")):
        render_walk(payload)


def test_a_key_that_is_not_text_is_refused() -> None:
    with pytest.raises(TypeError, match=r"payload\.scorecard has the key 3; keys must be text"):
        render_walk(full_payload() | {"scorecard": {3: {}}})


def test_a_payload_that_contains_itself_is_refused() -> None:
    payload = full_payload()
    payload["race"]["curves"].append(payload)
    with pytest.raises(ValueError, match="nested deeper than 32 levels"):
        render_walk(payload)


@pytest.mark.parametrize("key", ["title", "text", "tokens", "steps", "scorecard"])
def test_a_missing_part_is_named(key: str) -> None:
    payload = full_payload()
    del payload[key]
    with pytest.raises(ValueError, match=rf"payload\.{key} is missing"):
        render_walk(payload)


def test_wrong_parts_are_named() -> None:
    payload = full_payload()
    payload["steps"][2]["evidence"] = "certain"
    with pytest.raises(ValueError, match=r"payload\.steps\[2\]\.evidence is 'certain'"):
        render_walk(payload)
    payload["steps"] = payload["steps"][::-1]
    with pytest.raises(ValueError, match=r"payload\.steps has the names \('future', "):
        render_walk(payload)
    with pytest.raises(ValueError, match=r"payload\.tokens\[0\] is 3; it must be text"):
        render_walk(full_payload() | {"tokens": [3]})
    with pytest.raises(ValueError, match=r"payload\.steps is a str"):
        render_walk(full_payload() | {"steps": "none"})


def test_the_page_is_one_small_file_that_asks_for_nothing() -> None:
    page = render_walk(full_payload())
    assert len(page.encode("utf-8")) <= 1_300_000
    assert "{{" not in page.split("<script>")[0]
    markup = re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href|action|data)\s*=\s*["']?\s*(https?:)?//""", markup)
    assert not re.search(r"""url\(\s*["']?\s*(?!data:)""", markup)
    assert "@import" not in markup
    own = "".join(read_asset(name) for name in SCRIPTS if name.startswith("js/"))
    for word in ("fetch(", "XMLHttpRequest", "innerHTML", "insertAdjacentHTML", "eval(", ".html("):
        assert word not in own


def read_asset(name: str) -> str:
    return (files("ropewalk.report") / "assets" / name).read_text(encoding="utf-8")


def test_vendored_files_carry_their_notices() -> None:
    vendored = [name for name in (*STYLES, *SCRIPTS) if name.startswith("vendor/")]
    assert len(vendored) == 4
    for name in vendored:
        head = read_asset(name)[:8000]
        assert head.startswith("/*!")
        assert "Copyright" in head
    licences = read_asset("vendor/LICENSES.txt")
    for word in ("Mike Bostock", "Observable, Inc.", "Khan Academy", "SIL OPEN FONT LICENSE"):
        assert word in licences
    assert "0.6.17" in read_asset("vendor/README.md")


# ---- the page in a browser -----------------------------------------------------------------------


def find_chromium() -> str | None:
    named = os.environ.get("ROPEWALK_CHROMIUM")
    if named:
        return named
    if Path("/usr/bin/chromium").exists():
        return "/usr/bin/chromium"
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no Chromium found; set ROPEWALK_CHROMIUM to its path")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        running.close()


Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of a payload from a file; at the end nothing may have gone wrong in any."""
    contexts, troubles = [], []

    def opened(payload: dict[str, Any], width: int = 1280, scheme: str = "light") -> Any:
        place = tmp_path / f"walk-{len(contexts)}.html"
        place.write_text(render_walk(payload), encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"uncaught: {error}"))
        page.on("dialog", lambda dialog: (troubles.append("a dialog"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: request.url == place.as_uri() or troubles.append(request.url),
        )
        page.goto(place.as_uri())
        page.wait_for_selector("html.ready")
        page.wait_for_function(
            "[...document.querySelectorAll('.drawing')].every(node => node.children.length)"
        )
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


def failures(page: Any) -> list[str]:
    return page.locator(".note").all_inner_texts()


def test_every_part_is_there(open_page: Open) -> None:
    payload = full_payload()
    page = open_page(payload)
    assert page.title() == payload["title"]
    for step in payload["steps"]:
        section = page.locator(f"section#{step['name']}")
        text = section.inner_text()
        assert section.is_visible()
        for part in (step["title"], step["question"], step["verdict"], *step["paragraphs"]):
            assert part in text
        assert step["evidence"].capitalize() in section.locator(".verdict .badge").inner_text()
        assert section.locator(".katex").count() == len(step["equations"])
        assert section.locator(".numbers dd").count() == len(step["figures"])
        assert section.locator("figure .drawing svg").count() >= 1
    assert page.locator("#scorecard table.card").is_visible()
    assert page.locator("#race figure svg").count() >= 1
    assert failures(page) == []
    links = page.locator("#contents a")
    assert [link.get_attribute("href") for link in links.all()] == [
        *(f"#{name}" for name in STEPS),
        "#scorecard",
        "#race",
    ]


def test_running_text_is_set_as_it_is_meant(open_page: Open) -> None:
    payload = full_payload()
    step = payload["steps"][0]
    step["verdict"] = (
        "Within 2e-16 of M_k E(p), base^((D−2)/D); “1e-5 A_b”, x1e-5, snake_case stay."
    )
    verdict = open_page(payload).locator("#problem .verdict p")
    assert verdict.inner_text() == (
        "Within 2 × 10−16 of Mk E(p), base(D−2)/D; “1e-5 A_b”, x1e-5, snake_case stay."
    )
    assert verdict.locator("sup").all_inner_texts() == ["−16", "(D−2)/D"]
    assert verdict.locator("sub").all_inner_texts() == ["k"]


def test_everything_drawn_has_a_name(open_page: Open) -> None:
    page = open_page(full_payload())
    nameless = page.evaluate(
        """() => [
          ...[...document.querySelectorAll('svg')].filter(node =>
            !node.closest('[aria-hidden=true]') && !node.closest('button') &&
            !node.getAttribute('aria-label')),
          ...[...document.querySelectorAll('figure.figure')].filter(node =>
            !document.getElementById(node.getAttribute('aria-labelledby'))?.textContent ||
            !node.querySelector('figcaption')?.textContent),
          ...[...document.querySelectorAll('input')].filter(node =>
            !node.closest('label')?.textContent),
        ].map(node => node.outerHTML.slice(0, 120))"""
    )
    assert nameless == []


def test_each_slider_moves_its_figure_by_key(open_page: Open) -> None:
    page = open_page(full_payload())
    sliders = page.locator("input[type=range]")
    assert sliders.count() >= 9
    for slider in sliders.all():
        figure = slider.locator("xpath=ancestor::figure")
        drawing = figure.locator(".drawing")
        output = slider.locator("xpath=ancestor::label").locator("output")
        before = (drawing.inner_html(), output.inner_text())
        slider.focus()
        slider.press("ArrowRight")
        after = (drawing.inner_html(), output.inner_text())
        assert before[0] != after[0]
        assert before[1] != after[1]
        assert drawing.locator("svg").count() >= 1


def test_moving_both_keeps_the_dot_product(open_page: Open) -> None:
    page = open_page(full_payload())
    figure = page.locator("figure[data-figure='One pair of components, turning']")
    both, apart, pair = figure.locator("input[type=range]").all()
    score = figure.locator("[data-score]")
    arrow = figure.locator(".arrow.q:not(.ghost)")
    value, place = score.inner_text(), arrow.get_attribute("x2")
    for where in ("0", "17", "64"):
        both.fill(where)
        assert score.inner_text() == value
        assert arrow.get_attribute("x2") != place
    apart.fill("-3")
    moved = score.inner_text()
    assert moved != value
    pair.fill("31")
    assert score.inner_text() != moved


def test_mask_and_cube_answer(open_page: Open) -> None:
    page = open_page(full_payload())
    figure = page.locator("figure[data-figure='How far apart the outputs are']")
    before = figure.locator("svg").first.inner_html()
    figure.get_by_label("Causal mask").check(force=True)
    assert figure.locator("svg").first.inner_html() != before
    cube = page.locator("svg.cube").first
    cube.scroll_into_view_if_needed()
    before = cube.inner_html()
    box = cube.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 130)
    page.mouse.up()
    assert page.locator("svg.cube").first.inner_html() != before


def test_the_scorecard_speaks_to_pointer_and_keyboard(open_page: Open) -> None:
    payload = full_payload()
    page = open_page(payload)
    said = page.locator(".card-readout")
    page.get_by_role("button", name="rope, relative: holds, error 1.9", exact=False).first.hover()
    assert said.inner_text().startswith("rope, relative: holds, error 1.9 × 10⁻¹³.")
    first = page.locator("table.card button").first
    first.focus()
    assert said.inner_text().startswith("integer, unique: holds")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert "claimed to fail: measured and claimed disagree" in said.inner_text()
    page.keyboard.press("End")
    assert said.inner_text().startswith("learned, learnable: does not apply, or no record")
    assert page.locator("table.card button.differs").count() == 1
    cells = page.locator("table.card button")
    assert cells.count() == sum(map(len, payload["scorecard"].values()))
    assert page.locator("table.card button[tabindex='0']").count() == 1


def test_a_property_without_any_record_has_no_column(open_page: Open) -> None:
    payload = full_payload()
    for row in payload["scorecard"].values():
        row["learnable"] = {"error": None, "holds": None, "claimed": None}
    page = open_page(payload)
    heads = page.locator("table.card thead th").all_text_contents()
    assert heads == list(next(iter(payload["scorecard"].values())))[:-1]
    page.get_by_text("What the properties mean").click()
    assert page.locator(".glossary dt").all_inner_texts() == heads
    key = page.locator(".card-key").inner_text()
    assert "does not apply, or no record" in key


@pytest.mark.parametrize("width", [375, 1280])
def test_every_fold_opens_to_text(open_page: Open, width: int) -> None:
    page = open_page(full_payload(), width=width)
    folds = page.locator("details")
    assert folds.count() >= 8
    for fold in folds.all():
        fold.locator("summary").click()
        assert fold.locator("summary ~ *").first.is_visible()
    text = page.locator("body").inner_text()
    assert not re.search(r"\[object|undefined|\bNaN\b|\bnull\b", text)
    assert page.locator("dl.glossary dd").first.inner_text().startswith("No two positions")


def test_positions_are_counted_from_zero(open_page: Open) -> None:
    page = open_page(full_payload())
    marks = page.locator(".sentence sub").all_text_contents()
    assert marks == ["0", "1", "2", "3", "4"]
    heads = page.locator("#problem .numbers-table thead th").all_text_contents()
    assert heads == ["", "The (0)", "dog (1)", "chased (2)", "another (3)", "dog (4)"]


def test_stretched_bits_count_once(open_page: Open) -> None:
    payload = full_payload()
    drawing = payload["steps"][4]["drawing"]
    said = "From 31 to 32 the 8 bits move by 2.45, the 64 components of the sinusoids by "
    line = open_page(payload).locator("#sinusoidal .readout").first
    assert line.inner_text().startswith(said)
    drawing["bits"] = [[bit for bit in row[::-1] for _ in range(8)] for row in drawing["bits"]]
    line = open_page(payload).locator("#sinusoidal .readout").first
    assert line.inner_text().startswith(said)


def test_captions_agree_with_the_numbers_of_their_step(open_page: Open) -> None:
    payload = full_payload()
    page = open_page(payload)
    caption = page.locator("#relative figcaption").inner_text()
    assert "ranges over 0.41;" in caption
    assert "33 × 33 grid" in page.locator("#axes figcaption").inner_text()
    few_bits = page.locator("#future figcaption", has_text="few bits")
    assert "1.64 at 8 bits" in few_bits.inner_text()
    assert page.locator("#binary figcaption").nth(1).inner_text().count("first 64 of 256") == 1
    pair = page.locator("#rotary input[type=range]").nth(2)
    pair.fill("31")
    assert "47,117 positions" in page.locator("#rotary .score-note").inner_text()
    assert page.locator("#axes .small-table").count() == 1
    payload["steps"][7]["figures"] = {"y": 2.7e-15, "x": 3.1e-15, "z": 3e-15, "joint": 4.4e-15}
    assert open_page(payload).locator("#axes .small-table").count() == 0


def test_the_race_says_of_rope_only_what_its_numbers_say(open_page: Open) -> None:
    payload = full_payload()
    assert "RoPE is best" in open_page(payload).locator("#race").inner_text()
    payload["race"]["curves"][1]["median"][0] = 2.98  # sinusoidal: 2.97
    assert "RoPE is best" not in open_page(payload).locator("#race").inner_text()


def test_a_narrow_screen_shows_what_scrolls_and_cuts_nothing(open_page: Open) -> None:
    page = open_page(full_payload(), width=375)
    assert page.locator(".scroll-hint").is_visible()
    card = page.locator(".card-scroll.more-right")
    assert card.count() == 1
    card.evaluate("node => { node.scrollLeft = node.scrollWidth }")
    page.wait_for_selector(".card-scroll:not(.more-right)")
    sizes = page.evaluate(
        """() => [...document.querySelectorAll('.equation .katex')]
          .map(node => parseFloat(getComputedStyle(node).fontSize))"""
    )
    assert min(sizes) >= 15
    drawn = page.locator("#integer .drawing")
    assert "integer p=1000" in drawn.locator(".row-name").all_text_contents()
    assert {"← the code is louder", "the word is louder →"} == set(
        drawn.locator(".hint").all_text_contents()
    )
    wide = open_page(full_payload(), width=1280)
    assert not wide.locator(".scroll-hint").is_visible()


def test_lengths_are_written_in_full(open_page: Open) -> None:
    for width in (375, 1280):
        page = open_page(full_payload(), width=width)
        ticks = page.locator("main svg [aria-label$='tick label'] text").all_text_contents()
        assert "1,048,576" in ticks
        assert [tick for tick in ticks if re.search(r"\d[kKMG]$", tick)] == []


@pytest.mark.parametrize("texts", [[BAD_TEXT], HOSTILE[:9], HOSTILE[3:]], ids=["all", "a", "b"])
def test_hostile_text_stays_text(open_page: Open, texts: list[str]) -> None:
    page = open_page(payload_with_text(*texts), width=360)
    assert page.locator("main img, main script, header img, header script").count() == 0
    assert page.evaluate("document.scripts.length") == 2
    for i, name in enumerate(STEPS):
        title = page.locator(f"#{name} h2").evaluate("node => node.lastChild.textContent")
        assert title == texts[i % len(texts)]
    assert page.locator("section").count() == len(STEPS) + 2
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert failures(page) == []


@pytest.mark.parametrize("drawing", [None, {}, {"reason": "This text repeats <no> token."}])
def test_a_page_without_drawings_still_tells_the_walk(open_page: Open, drawing: object) -> None:
    payload = full_payload()
    for step in payload["steps"]:
        step["drawing"] = drawing
    payload["race"] = None
    page = open_page(payload)
    notes = failures(page)
    assert len(notes) == len(STEPS)
    if drawing:
        assert set(notes) == {"This text repeats <no> token."}
    assert page.locator("section").count() == len(STEPS) + 1
    assert page.locator("#rotary [data-score]").is_visible()


def test_a_drawing_with_parts_missing_spares_the_rest(open_page: Open) -> None:
    whole = full_payload()
    for place in range(max(len(step["drawing"]) for step in whole["steps"])):
        payload = copy.deepcopy(whole)
        for step in payload["steps"]:
            keys = list(step["drawing"])
            step["drawing"][keys[place % len(keys)]] = None
        page = open_page(payload)
        assert page.locator("section").count() == len(STEPS) + 2
        for name in ("problem", "binary", "sinusoidal", "rotary", "future"):
            assert page.locator(f"#{name} .drawing svg").count() >= 1


def test_a_wrong_drawing_is_a_note_and_no_more(open_page: Open) -> None:
    payload = full_payload()
    for step in payload["steps"]:
        step["drawing"] = dict.fromkeys(step["drawing"], 3)
    page = open_page(payload)
    assert page.locator("section").count() == len(STEPS) + 2
    assert len(failures(page)) >= len(STEPS) - 1


@pytest.mark.parametrize(
    ("tokens", "width"),
    [
        (["dog"], 360),
        (["dog"] * 6, 1280),
        (["a", "b", "c"], 1280),
        ([f" word{i % 40}" for i in range(60)], 360),
        ([f" word{i % 40}" for i in range(60)], 1280),
    ],
)
def test_texts_of_any_length_are_drawn(open_page: Open, tokens: list[str], width: int) -> None:
    page = open_page(full_payload(tokens), width=width)
    assert failures(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(320, "light"), (360, "dark"), (360, "light"), (800, "light"), (1280, "dark")],
)
def test_every_width_and_theme_fits(open_page: Open, width: int, scheme: str) -> None:
    page = open_page(full_payload(), width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    spilled = page.evaluate(
        """() => [...document.querySelectorAll('main *, header *')]
          .filter(node => node.getBoundingClientRect().right > innerWidth + 1
            && !node.closest('.scroll, .equation, .rope, .unseen'))
          .map(node => node.outerHTML.slice(0, 120))"""
    )
    assert spilled == []
    for name in (*STEPS, "scorecard", "race"):
        assert page.locator(f"section#{name}").is_visible()
    ink, paper = page.evaluate(
        """() => { const style = getComputedStyle(document.documentElement);
          return [style.color, style.backgroundColor]; }"""
    )
    light = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
    assert (light[0] < light[1]) == (scheme == "light")
    assert abs(light[0] - light[1]) > 450


def test_the_contents_open_by_key_on_a_phone(open_page: Open) -> None:
    page = open_page(full_payload(), width=360)
    opener = page.locator("#contents button")
    opener.focus()
    page.keyboard.press("Enter")
    link = page.locator("#contents a[href='#rotary']")
    assert link.is_visible()
    page.keyboard.press("Escape")
    assert not link.is_visible()
    opener.click()
    link.click()
    page.wait_for_function("document.querySelector('.here').textContent.startsWith('7 / 9')")
    assert page.locator("#contents a[aria-current]").get_attribute("href") == "#rotary"


def test_on_paper_there_are_no_controls_and_no_dark(open_page: Open) -> None:
    page = open_page(full_payload(), scheme="dark")
    page.emulate_media(media="print")
    assert not page.locator("#contents").is_visible()
    assert not page.locator(".controls").first.is_visible()
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", paper)[:3])) > 700
