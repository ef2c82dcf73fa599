"""The claims that training decides: how statements are judged, stored, drawn and written."""

from __future__ import annotations

import importlib
import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ropewalk import records
from ropewalk.report.figures.forest import INK, Row, forest

ROOT = Path(__file__).resolve().parent.parent
STORED = records.named("claim_")


def script(name: str) -> ModuleType:
    folder = str(ROOT / "runs")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("values", "side", "verdict"),
    [
        ([1.1, 1.2, 1.3, 1.4, 1.5], "above", "reproduced"),
        ([1.1, 1.2, 1.3, 1.4, 1.5], "below", "refuted"),
        ([0.1, 0.2, 0.3, 0.4, 0.5], "below", "reproduced"),
        ([0.1, 0.2, 0.3, 0.4, 0.5], "above", "refuted"),
        ([0.9, 1.2, 1.3, 1.4, 1.5], "above", "undecided"),
        ([1.0, 1.2, 1.3, 1.4, 1.5], "above", "undecided"),  # on the margin is on neither side
        ([1.1, 1.2, 1.3, 1.4, math.inf], "above", "reproduced"),
    ],
)
def test_a_statement_is_judged_by_the_whole_interval(values, side, verdict):
    claims = script("claims")
    by_seed = dict(enumerate(values))
    judged = claims.Statement("", "", by_seed, side, 1.0).judged()
    assert judged["verdict"] == verdict
    assert judged["low"] == min(values)
    assert judged["high"] == (max(values) if math.isfinite(max(values)) else None)
    idle = claims.Statement("", "", by_seed, side, 1.0, "nobody learned it").judged()
    assert idle["verdict"] == "undecided"


def test_a_claim_is_reproduced_if_all_of_it_is():
    verdict = script("claims").verdict
    of = lambda *words: verdict([{"verdict": word} for word in words])  # noqa: E731
    assert of("reproduced", "reproduced") == "reproduced"
    assert of("reproduced", "refuted") == of("reproduced", "undecided") == "in part"
    assert of("refuted", "undecided") == of("refuted") == "refuted"
    assert of("undecided") == "undecided"


def test_differences_are_taken_seed_by_seed():
    claims = script("claims")
    assert claims.minus({1: 3.0, 0: 5.0}, {0: 1.0, 1: 1.5}) == {0: 4.0, 1: 1.5}
    with pytest.raises(ValueError, match="not the same"):
        claims.minus({0: 1.0}, {1: 1.0})
    assert claims.unlearned({"a": {0: 0.9}, "b": {0: 0.1}}, 0.5) == ""
    assert "best, a, has 0.40" in claims.unlearned({"a": {0: 0.4}, "b": {0: 0.1}}, 0.5)


@pytest.mark.parametrize("name", STORED)
def test_stored_verdicts_follow_from_the_stored_values(name: str):
    claims, record = script("claims"), records.load(name)
    assert record is not None
    for each in record["statements"]:
        values = dict(enumerate(math.inf if v is None else v for v in each["values"]))
        again = claims.Statement(
            each["words"], each["unit"], values, each["side"], each["margin"], each["idle"]
        )
        assert again.judged() == each
    assert record["verdict"] == claims.verdict(record["statements"])


SCORED = [name for name in STORED if name not in ("claim_02", "claim_03", "claim_09")]
"""Claims whose statements are about scores, which their records hold."""


@pytest.mark.parametrize("name", SCORED)
def test_stored_statements_follow_from_the_stored_races(name: str):
    record = records.load(name)
    assert record is not None
    module = script(Path(record["script"]).stem)
    judged = [each.judged() for each in module.judge(_records(record["races"]))]
    assert judged == record["statements"]
    trials = {(each.task, each.encoding, each.seed) for each in module.TRIALS}
    assert {
        (r["config"]["task"], r["config"]["encoding"], r["config"]["seed"])
        for r in _records(record["races"])
    } == trials


def _records(races: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records as far as their races hold them."""
    return [
        {
            "config": {
                "task": race["task"],
                "encoding": curve["encoding"],
                "seed": seed,
            },
            "better": race["better"],
            "scores": {
                str(n): own[i] for n, own in zip(race["lengths"], curve["values"], strict=True)
            },
        }
        for race in races
        for curve in race["curves"]
        for i, seed in enumerate(curve["seeds"])
    ]


def test_a_forest_stands_on_its_margins():
    rows = [
        Row("a < b & <script>", 0.2, 0.3, 0.4, 0.0, "above", "reproduced"),
        Row("left", -3.0, -1.0, 1.0, 0.0, "below", "undecided"),
    ]
    drawn = forest("title", "caption", rows)
    assert "<script>" not in drawn
    bars = re.findall(r'stroke="(#\w+)" stroke-width="3" d="M(-?\d+) \d+H(-?\d+)"', drawn)
    assert [ink for ink, *_ in bars] == [INK["reproduced"], INK["undecided"]]
    (_, low, high), (_, wide, far) = bars
    margin = int(re.findall(r'class="g" d="M(\d+) 22V', drawn)[0])
    assert margin < int(low) < int(high)
    assert int(wide) < margin < int(far)
    reach = int(high) - margin
    assert int(low) - margin == pytest.approx(reach / 2, abs=1)
    assert margin - int(wide) == reach
    assert int(far) - margin == pytest.approx(reach / 3, abs=1)
    with pytest.raises(ValueError, match="needs a row"):
        forest("title", "", [])
