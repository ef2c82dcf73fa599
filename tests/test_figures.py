"""Figures: what they show is right, they are the same everywhere, and a change shows."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as xml
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ropewalk
from ropewalk.catalog import builtin, encodings
from ropewalk.checks.content import seeded
from ropewalk.cli import main
from ropewalk.report.figures import Figure, Heat, Lines, figure, same, svg
from ropewalk.report.figures.compare import levels

LARGEST = 15_000
SVG = "{http://www.w3.org/2000/svg}"


def drawn(name: str, **config: Any) -> Figure:
    spec = encodings()[name]
    with seeded(0):
        return figure(spec.make(**{**spec.config, **config}), name)


def lines(name: str, **config: Any) -> list[Lines]:
    return [panel for panel in drawn(name, **config).panels if isinstance(panel, Lines)]


@pytest.mark.parametrize("name", builtin())
def test_every_figure_is_small_self_contained_and_told_in_words(name):
    text = svg(drawn(name))
    assert len(text.encode()) <= LARGEST
    root = xml.fromstring(text)
    assert root.findtext(f"{SVG}title") == name
    assert root.findtext(f"{SVG}desc")
    assert not re.search(r"href|url\(|<script|<image|@import|\snan|\sinf", text)
    assert "prefers-color-scheme:dark" in text


@pytest.mark.parametrize("name", builtin())
def test_a_figure_is_the_same_bytes_whatever_was_done_before(name):
    spec = encodings()[name]
    with seeded(0):
        encoding = spec.make(**spec.config)
    first = svg(figure(encoding, name))
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(99)
        assert svg(figure(encoding, name)) == first
    finally:
        torch.set_default_dtype(torch.float32)


def test_wavelengths_and_scores_are_those_of_the_equation():
    waves, scores = lines("rope")
    theta = [10000 ** (-2 * c / 64) for c in range(32)]
    assert waves.curves["pairs"] == pytest.approx([2 * math.pi / t for t in theta], rel=1e-12)
    mean = [sum(math.cos(d * t) for t in theta) / 32 for d in range(128)]
    assert scores.curves["q = k"] == pytest.approx(mean, abs=1e-12)
    assert scores.curves["largest"] == pytest.approx([1.0] * 128, abs=1e-12)


def test_axes_have_a_curve_each_and_still_pairs_none():
    waves, scores = lines("axial")
    assert set(waves.curves) == {"axis 0", "axis 1"}
    assert [w is None for w in waves.curves["axis 0"]] == [False] * 16 + [True] * 16
    assert {"axis 0", "axis 1", "jointly"} < set(scores.curves)
    assert "8 of 32 pairs stand still" in drawn("p_rope").caption


def test_a_bias_is_drawn_per_head():
    (panel,) = lines("alibi")
    assert panel.curves["head 0"] == pytest.approx([-d / 2 for d in range(128)])
    assert panel.curves["head 7"] == pytest.approx([-d / 256 for d in range(128)])
    (panel,) = lines("alibi", heads=40)
    assert list(panel.curves) == [f"head {h}" for h in (0, 6, 11, 17, 22, 28, 33, 39)]


def test_a_code_is_drawn_by_lane_and_position():
    (panel,) = drawn("binary", dim=16, bits=16).panels
    assert isinstance(panel, Heat)
    bits = [[float(p >> lane & 1) for p in range(64)] for lane in range(16)]
    assert [list(row) for row in panel.rows] == bits
    (grid,) = levels(svg(Figure("bits", "", (panel,))))
    assert grid == [8 * int(b) for row in bits for b in row]


def test_a_table_that_ends_is_drawn_to_its_end():
    (panel,) = drawn("learned", length=5).panels
    assert isinstance(panel, Heat)
    assert len(panel.rows[0]) == 5
    assert xml.fromstring(svg(drawn("learned", length=1, dim=1))).tag == f"{SVG}svg"


class Gates(ropewalk.Contextual):
    """A learned offset for each distance, 0 at first; it can read hidden states."""

    def __init__(self, reads: bool = False):
        super().__init__()
        self.heads, self.head_dim = 2, 8
        self.offsets = torch.nn.Parameter(torch.zeros(2, 128))
        self.content_dim = 5 if reads else None
        self.seen: torch.Tensor | None = None

    def read(self, content):
        made = Gates()
        made.offsets, made.seen = self.offsets, content.mean(-1)
        return made

    def bias(self, block):
        gap = block.q_positions[..., :, None] - block.kv_positions[..., None, :]
        found = self.offsets[:, gap.clamp(0, 127)]
        return found[None] if self.seen is None else found[None] + self.seen[:, None, None, :]


def test_a_contextual_encoding_that_adds_nothing_at_first_is_drawn_with_random_parameters():
    told = figure(Gates(), "gates")
    assert "drawn at random" in told.caption
    alike, random = told.panels
    for panel in (alike, random):
        assert isinstance(panel, Lines)
        assert set(panel.curves) == {"head 0", "head 1"}
        assert any(panel.curves["head 0"])


def test_a_contextual_encoding_that_reads_hidden_states_is_drawn():
    told = figure(Gates(reads=True), "gates")
    assert "at random" not in told.caption
    alike, random = told.panels
    assert isinstance(alike, Lines)
    assert isinstance(random, Lines)
    assert len(set(alike.curves["head 1"])) == 1
    assert len(set(random.curves["head 1"])) > 90


class Soft(ropewalk.RoPE):
    """Not linear in q."""

    def encode_q(self, q, positions=None, *, offset=None):
        return super().encode_q(q.abs() + q * q, positions, offset=offset)


def test_the_largest_score_is_drawn_of_linear_encodings_only():
    told = figure(Soft(64), "soft")
    scores = told.panels[1]
    assert isinstance(scores, Lines)
    assert set(scores.curves) == {"q = k"}
    assert "largest" not in told.caption
    assert "largest" in drawn("rope").caption


def test_heads_with_frequencies_of_their_own_have_a_curve_each_where_there_is_room():
    rows = tuple((tuple(0.1 * (h + 1) ** -c for c in range(4)),) for h in range(8))
    told = figure(ropewalk.RoPE(ropewalk.Spectrum(rows, 8)), "own")
    waves, scores = told.panels
    assert isinstance(waves, Lines)
    assert isinstance(scores, Lines)
    assert set(waves.curves) == {"head 0", "head 2", "head 5", "head 7"}
    assert set(waves.curves) < set(scores.curves)
    assert waves.curves["head 7"] == pytest.approx([20 * math.pi * 8**c for c in range(4)])
    assert "4 of 8 heads" in told.caption


class Broken(ropewalk.Bias):
    """It answers nan."""

    def __init__(self):
        super().__init__()
        self.heads = 1

    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        shape = (1, len(q_positions), len(kv_positions))
        return torch.full(shape, float("nan"), dtype=dtype)

    def reference(self, head, q_position, k_position):
        return math.nan


def test_what_cannot_be_drawn_says_so():
    with pytest.raises(ValueError, match=r"broken cannot be drawn: .*nan"):
        figure(Broken(), "broken")
    with pytest.raises(TypeError, match="must be an Encoding"):
        figure(torch.nn.Linear(2, 2), "linear")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="no finite number"):
        svg(Figure("none", "", (Lines("none", "x", [0, 1], {"a": [None, math.inf]}),)))


def test_words_are_escaped():
    panel = Lines('<b>"x"', "a&b", [0, 1], {"<i>": [0, 1], "j": [1, 0]})
    text = svg(Figure("</title><script>", "<desc>&", (panel,)))
    root = xml.fromstring(text)
    assert root.findtext(f"{SVG}title") == "</title><script>"
    assert "<script" not in text


numbers = st.floats(-50, 50).map(lambda x: round(x, 3))


@settings(max_examples=60)
@given(st.lists(numbers, min_size=4, max_size=40), st.integers(0, 2**32))
def test_a_last_bit_changes_nothing_that_is_told(values, seed):
    generator = torch.Generator().manual_seed(seed)
    noise = 1 + 1e-12 * torch.randn(len(values), generator=generator, dtype=torch.float64)
    moved = (torch.tensor(values, dtype=torch.float64) * noise).tolist()
    x = list(range(len(values)))

    def both(v: list[float]) -> str:
        rows = [v, v[::-1]]
        return svg(
            Figure(
                "t", "c", (Lines("l", "x", x, {"a": v, "b": v[::-1]}), Heat("h", "x", "y", rows))
            )
        )

    assert same(both(values), both(moved))


@pytest.mark.parametrize("name", ["rope", "alibi", "sinusoidal"])
def test_a_change_is_seen(name):
    usual = svg(drawn(name))
    change = {"rope": {"base": 11000.0}, "alibi": {"heads": 6}, "sinusoidal": {"base": 5000.0}}
    assert not same(usual, svg(drawn(name, **change[name])))
    assert not same(usual, usual.replace("distance", "length").replace("lane", "row"))
    assert not same(usual, "")
    assert not same(usual, usual + "<g/>")


def test_a_scale_that_changes_is_seen_though_the_curve_is_not():
    def at(size: float) -> str:
        return svg(Figure("t", "c", (Lines("l", "x", [0, 1, 2], {"a": [0.0, size, 0.5 * size]}),)))

    assert not same(at(1.0), at(2.0))
    assert not same(at(1.0), at(1.1))
    heat = [svg(Figure("t", "c", (Heat("h", "x", "y", [[0.0, s]]),))) for s in (1.0, 1.1)]
    assert levels(heat[0]) == levels(heat[1])
    assert not same(*heat)


def test_show_writes_the_figure_of_any_configuration(tmp_path, capsys):
    file = tmp_path / "axial.svg"
    arguments = ["show", "axial", "--set", "axes=3", "--set", "head_dim=96", "--out", str(file)]
    assert main(arguments) == 0
    assert str(file.name) in capsys.readouterr().out.replace("\n", "")
    text = file.read_text(encoding="utf-8")
    assert xml.fromstring(text).findtext(f"{SVG}title") == "axial(head_dim=96, axes=3)"
    assert "axis 2" in text
    assert main(["show", "rope", "--out", str(tmp_path / "no" / "x.svg")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["show", "rpe", "--out", str(file)]) == 2
    assert file.read_text(encoding="utf-8") == text


# --- upright lines --------------------------------------------------------------------------------


def marked(x: list[float], **marks: float) -> tuple[dict[str, tuple[float, str]], list[float]]:
    """label → (where its line stands, on which side the label ends), and where the curve goes."""
    panel = Lines("y", "x", x, {"curve": [float(i) for i in range(len(x))]}, marks=marks)
    root = xml.fromstring(svg(Figure("title", "caption", (panel,))))
    texts = {each.text: each.get("text-anchor") for each in root.iter(f"{SVG}text")}
    paths = {"m": [], "c": []}
    for path in root.iter(f"{SVG}path"):
        paths.setdefault(str(path.get("class")), []).append(str(path.get("d")))
    places = [float(re.findall(r"M(\d+) ", d)[0]) for d in paths["m"]]
    found = {name: (at, str(texts[name])) for name, at in zip(marks, places, strict=True)}
    curve = [float(n) for n in re.findall(r"[ML](\d+) ", paths["c"][0])]
    return found, curve


def test_a_mark_stands_where_its_x_is():
    found, curve = marked([0.0, 100.0, 200.0, 300.0], far=200.0, near=0.0, between=50.0)
    assert found["far"] == (curve[2], "end")
    assert found["near"] == (curve[0], "start"), "there is no room before it"
    assert abs(found["between"][0] - (curve[0] + curve[1]) / 2) <= 1
    assert not marked([0.0, 1.0])[0]


@given(st.floats(-1e6, 1e6, allow_nan=False))
def test_the_axis_reaches_to_every_mark(at: float):
    found, curve = marked([10.0, 20.0], mark=at)
    assert 56 <= found["mark"][0] <= 744
    assert (found["mark"][0] < curve[0]) <= (at < 10)
    assert (found["mark"][0] > curve[-1]) <= (at > 20)


@pytest.mark.parametrize(("native", "to"), [(16, 512), (64, 128), (100, 101), (1, 8)])
def test_the_loss_by_place_has_a_line_at_the_native_length(native: int, to: int):
    from ropewalk.lab.trained.curves import Curve, Lengthened
    from ropewalk.report.lengthened import page

    edges = ((0, to // 2), (to // 2, to))
    losses = ((1.0, 1.1), (2.0, 2.1))
    curves = tuple(Curve(name, None, losses) for name in ("untouched", "yarn ×8"))
    text = page(Lengthened(native, to, ("a", "b"), curves, edges, losses), "model")
    (drawing,) = re.findall(r"<svg.*?</svg>", text, re.S)
    assert f">native length {native:,}</text>" in drawing
    (across,) = re.findall(r'class="m"[^>]* d="M(\d+) ', drawing)
    middles = [to // 4, to // 2 + (to - to // 2) / 2]
    starts = re.findall(r'class="c"[^>]* d="M(\d+) [^L]*L(\d+) ', drawing)[0]
    a, b = (int(n) for n in starts)
    expected = a + (b - a) * (native - middles[0]) / (middles[1] - middles[0])
    assert abs(int(across) - expected) <= 2 + 0.02 * abs(expected)
