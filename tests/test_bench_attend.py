"""The benchmark of attention: the truth is the textbook's, and a wrong result gets no figure."""

from __future__ import annotations

import json
import math

import pytest
import torch
from test_cli import fails_in_one_line, run
from test_figures import Gates

import ropewalk
from ropewalk.bench import attend
from ropewalk.bench.attend import Inputs, Plan, measure
from ropewalk.bench.timing import Effort

QUICK = Effort(3, 0.01, 1e-6)


def literal(q, k, v, score) -> list[list[float]]:
    """One head of causal attention, number by number."""
    rows = []
    for i in range(len(q)):
        weights = [math.exp(score(i, j, q[i], k[j])) for j in range(i + 1)]
        total = math.fsum(weights)
        lanes = range(len(v[0]))
        rows.append([sum(w * v[j][c] for j, w in enumerate(weights)) / total for c in lanes])
    return rows


def product(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def test_the_truth_is_attention_written_out():
    plan = Plan(tokens=(9,), head_dim=8)
    given = Inputs(ropewalk.make("alibi", heads=4), plan, 9, torch.float32)
    found = given.dense(9)
    for head in range(4):
        slope = 2.0 ** (-2 * (head + 1))
        q, k, v = (x[0, head].double().tolist() for x in (given.q, given.k, given.v))

        def score(i, j, qi, kj, slope=slope):
            return product(qi, kj) / math.sqrt(8) - slope * (i - j)

        assert found[0, head].tolist() == [pytest.approx(r) for r in literal(q, k, v, score)]
    rope = ropewalk.RoPE(8)
    oracle = rope.reference
    given = Inputs(rope, plan, 9, torch.float32)
    q, k, v = (x[0, 5].double().tolist() for x in (given.q, given.k, given.v))

    def turned(i, j, qi, kj):
        return product(oracle(qi, i), oracle(kj, j)) / math.sqrt(8)

    expected = literal(q, k, v, turned)
    assert given.dense(9)[0, 5].tolist() == [pytest.approx(row) for row in expected]
    assert given.dense(2)[0, 5].tolist() == [pytest.approx(row) for row in expected[-2:]]


@pytest.mark.parametrize("mode", attend.MODES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "encoding",
    [
        ropewalk.make("rope", head_dim=16),
        ropewalk.make("alibi", heads=3),
        ropewalk.make("axial", head_dim=16),
        Gates(),
        Gates(reads=True),
    ],
    ids=lambda e: type(e).__name__,
)
def test_every_family_is_right_and_timed(encoding, dtype, mode):
    row = measure(encoding, Plan(effort=QUICK, batch=2, head_dim=16), 40, dtype, mode)
    assert row["verdict"] == "right", row["error"]
    assert row["ratio_to_plain"] > 0
    assert row["milliseconds"] > 0
    assert row["shape"][0] == 2
    assert row["rounds"] == 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "change",
    [
        lambda y: y * 1.2,
        lambda y: y * math.nan,
        lambda y: torch.cat((y[..., :-1, :], 0 * y[..., -1:, :]), -2),
    ],
    ids=["scaled", "nan", "last row"],
)
def test_a_wrong_result_gets_no_figure(monkeypatch, dtype, change):
    usual = ropewalk.attend
    monkeypatch.setattr(ropewalk, "attend", lambda *a, **k: change(usual(*a, **k)))
    for mode in attend.MODES:
        row = measure(ropewalk.make("alibi", heads=2), Plan(effort=QUICK), 24, dtype, mode)
        assert (row["verdict"], row["ratio_to_plain"]) == ("wrong", None)


def test_a_result_that_is_wrong_at_full_length_alone_gets_no_figure(monkeypatch):
    usual = ropewalk.attend

    def late(q, *rest, **named):
        y = usual(q, *rest, **named)
        return y if q.shape[-2] <= 8 else torch.cat((y[..., :-1, :], 2 * y[..., -1:, :]), -2)

    monkeypatch.setattr(attend, "JUDGED", 8)
    monkeypatch.setattr(ropewalk, "attend", late)
    row = measure(ropewalk.make("alibi", heads=2), Plan(effort=QUICK), 24, "float32", "forward")
    assert row["verdict"] == "wrong"


def test_a_wrong_gradient_gets_no_figure(monkeypatch):
    usual = ropewalk.attend
    forgets = lambda q, k, v, *a, **w: usual(q, k.detach() + 0 * k, v, *a, **w)  # noqa: E731
    monkeypatch.setattr(ropewalk, "attend", forgets)
    rows = [measure(ropewalk.make("rope", head_dim=8), Plan(effort=QUICK), 24, "float32", mode)
            for mode in attend.MODES]  # fmt: skip
    assert [row["verdict"] for row in rows] == ["right", "wrong"]


def test_bench_attend_is_one_document_and_a_table(capsys, monkeypatch):
    arguments = ("bench", "attend", "alibi", "--set", "heads=2", "--quick", "--mode", "forward")
    status, out, err = run(capsys, *arguments, "--json")
    document = json.loads(out)
    assert (status, err) == (0, "")
    assert (document["benchmark"], document["encoding"]) == ("attend", "alibi")
    assert document["config"] == {"heads": 2}
    assert [row["dtype"] for row in document["rows"]] == ["float32", "bfloat16"]
    monkeypatch.setattr(attend, "TOLERANCES", dict.fromkeys(attend.TOLERANCES, 0.0))
    status, out, _ = run(capsys, *arguments, "--dtype", "float32")
    assert status == 1
    assert "wrong" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("sinusoidal",), "acts on embeddings"),
        (("alibbi",), "did you mean 'alibi'"),
        (("rope", "--dtype", "float3"), "did you mean 'float32'"),
        (("rope", "--mode", "backward"), "use one of forward"),
        (("rope", "--tokens", "0"), "tokens=0"),
        (("rope", "--batch", "0"), "batch=0"),
        (("rope", "--threads", "9999"), "threads=9999"),
        (("rope", "--rounds", "1"), "too few"),
        (("nosuch.py",), "no such file"),
    ],
)
def test_wrong_arguments_give_one_line(capsys, arguments, says):
    assert says in fails_in_one_line(capsys, "bench", "attend", *arguments)
