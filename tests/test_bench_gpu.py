"""The GPU benchmark on the CPU: forms and arithmetic are right; only the clock is missing."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from interpreted import triton

from ropewalk.kernels import devices, fused, gpu, pages, phases

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
with triton.knobs.runtime.scope():
    triton.knobs.runtime.interpret = True
    import gpu_peers

import gpu as bench  # noqa: E402
import gpu_checks  # noqa: E402
import gpu_forms  # noqa: E402
import gpu_fusions  # noqa: E402
import gpu_sweep  # noqa: E402
import gpu_timing  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def on_the_gpu_kernel(monkeypatch):
    """CPU tensors go to the interpreted kernel, and nothing is compiled."""
    kernel = devices.Kernel(gpu, "interpreted", compiled=True, into_pages=gpu.into_pages)
    monkeypatch.setattr(pages, "kernel_for", lambda x: kernel)
    monkeypatch.setattr(pages, "_waits", lambda x: True)
    monkeypatch.setattr(gpu_fusions, "_compiled", lambda function: function)
    monkeypatch.setattr(fused, "operators", lambda x: gpu)
    monkeypatch.setattr(fused, "direct", lambda x: gpu)
    monkeypatch.setattr(phases, "kernel_on", lambda device_type: kernel)
    monkeypatch.setattr(gpu_forms, "_compiled", lambda: gpu_peers.eager)


class MadeUp:
    """A clock that runs each call and says what it likes; the copy takes a second."""

    def __init__(self) -> None:
        self.calls = 0
        self.over = False

    def time(self, call: Callable[[], object]) -> Callable[[], float]:
        call()
        self.calls += 1
        return lambda: 1.0 if self.over else math.nan

    def finish(self) -> None:
        self.over = True


# --- timing ---------------------------------------------------------------------------------------


def test_medians_are_of_ratios_within_a_round():
    rounds = [{"copy": 1.0, "a": 2.0}, {"copy": 10.0, "a": 10.0}, {"copy": 1.0, "a": 3.0}]
    found = gpu_timing.medians(rounds)
    assert found["a"] == (3.0, 2.0, False)
    assert found["copy"].ratio == 1
    slow = [{"copy": 1.0}, {"copy": 2.5}, {"copy": 3.0}]
    assert gpu_timing.medians(slow)["copy"].noisy


def test_forms_take_turns_and_warm_rounds_do_not_count():
    order: list[str] = []
    names = ("copy", "a", "b")
    forms = {name: partial(order.append, name) for name in names}
    clock = MadeUp()
    found = gpu_timing.measure(forms, clock, rounds=4)
    assert set(found) == set(names)
    assert clock.calls == 3 * (gpu_timing.WARM + 4)
    firsts = order[::3]
    assert set(firsts) == set(names)
    assert all(set(order[i : i + 3]) == set(names) for i in range(0, len(order), 3))
    assert found["b"].ratio == 1  # read after the clock has finished, or it were nan


def test_calls_are_timed_together():
    seen: list[str] = []
    clock = gpu_timing.Calls(lambda: seen.append("wait"), calls=3)
    seconds = clock.time(lambda: seen.append("call"))
    assert seen == ["wait", "call", "call", "call", "wait"]
    assert 0 < seconds() < 1


# --- forms ----------------------------------------------------------------------------------------


def small(row: gpu_forms.Row) -> gpu_forms.Row:
    tokens = 1 if row.mode.startswith("decode") else 9
    rotary = None if row.rotary_dim is None else 8
    if row.mode == "into pages":
        return row._replace(shape=(1, 2, 2 * gpu_fusions.SIZE, 16))
    return row._replace(shape=(2, 4, tokens, 16), rotary_dim=rotary, key_heads=2)


ROWS = {small(row).name: small(row) for row in gpu_forms.rows() if row.dtype != "float16"}


def turned_by_pytorch(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return x.copy_(gpu_peers.eager(x, cos.repeat(1, 2), sin.repeat(1, 2)))


@pytest.mark.parametrize("row", [r for r in ROWS.values() if r.mode != "decode, graph"], ids=str)
def test_every_form_of_every_row_is_right(row, monkeypatch):
    if row.dtype == "bfloat16":  # which the interpreter cannot multiply
        monkeypatch.setattr(gpu_peers, "liger_like", turned_by_pytorch)
    record = bench.timed(row, CPU, rounds=1, clock=MadeUp())
    assert len(record["forms"]) >= 3 or row.layout == "interleaved"
    for name, form in record["forms"].items():
        assert form["right"], (name, form)
        assert form["ratio"] == 1
    assert "TB/s" in bench.table(record)
    assert row.name in bench.table(record)


def test_rows_cover_modes_and_dtypes():
    rows = list(gpu_forms.rows())
    assert {row.mode for row in rows} == set(gpu_forms.MODES)
    assert {row.dtype for row in rows} == {"bfloat16", "float32", "float16", "float64"}
    assert len({row.name for row in rows}) == len(rows)


def test_a_wrong_form_is_not_timed(monkeypatch):
    monkeypatch.setattr(gpu_peers, "flash_like", lambda x, cos, sin, out: out.copy_(x))
    row = ROWS["out= float32 2×4×9×16"]
    record = bench.timed(row, CPU, rounds=1, clock=MadeUp())
    wrong = record["forms"]["flash-like"]
    assert not wrong["right"]
    assert "ratio" not in wrong
    assert "WRONG" in bench.table(record)
    assert record["forms"]["ropewalk"]["right"]


# --- checks ---------------------------------------------------------------------------------------


def test_the_checks_hold_here():
    found = list(gpu_checks.checks(CPU, tokens=5, most=2**13, dtypes=[torch.float32]))
    assert [check.text for check in found if not check.holds] == []
    assert len(found) >= 2 + 8 + 3 * 8 + 10 + 3


def test_a_check_sees_a_wrong_kernel(monkeypatch):
    real = gpu.rotate

    def planted(x, out, where, offset, steps, scale, lanes):
        real(x, out, where, offset, steps, scale, lanes ^ 1)

    monkeypatch.setattr(gpu, "rotate", planted)
    found = islice(gpu_checks.checks(CPU, tokens=5, dtypes=[torch.float32]), 4)
    wrong = {check.name for check in found if not check.holds}
    assert wrong == {"half, torch.float32", "interleaved, torch.float32"}
    assert not gpu_checks.Check("", math.nan, 1.0).holds


# --- the command ----------------------------------------------------------------------------------


def test_without_a_gpu_it_says_so_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench.main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "no CUDA or ROCm GPU here" in shown.err


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "kernel_on", lambda _: devices.Kernel(None, "gpu: reference"))
    assert bench.unusable() == "the GPU kernel is not in use: gpu: reference"


@pytest.fixture
def pretended(monkeypatch):
    """A GPU by name, with short work to do."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Pretended")
    made = SimpleNamespace(checks=[gpu_checks.Check("one", 0.0, 1.0)])
    monkeypatch.setattr(bench, "checks", lambda device: made.checks)
    form = {"error": 0.0, "right": True, "seconds": 1.0, "ratio": 1.0, "noisy": False}
    record = {"bytes": 8, "forms": {"copy": form}}
    monkeypatch.setattr(bench, "timed", lambda row, *_: {"name": row.name, **record})
    return made


def test_json_is_one_document_and_rows_out_of_time_are_named(pretended, capsys):
    import json

    assert bench.main(["--json", "--only", "decode"]) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["device"] == "Pretended"
    assert [row["name"] for row in report["rows"]] == [
        row.name for row in gpu_forms.rows() if row.mode.startswith("decode")
    ]
    assert report["left_out"] == []
    assert "1.00× copy" in shown.err
    assert bench.main(["--seconds", "0"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("left out for want of time") == len(list(gpu_forms.rows()))


def test_no_speed_behind_a_red_check(pretended, capsys):
    pretended.checks = [gpu_checks.Check("one", 2.0, 1.0)]
    assert bench.main([]) == 1
    shown = capsys.readouterr()
    assert "WRONG one: error 2, bound 1" in shown.out
    assert "copy" not in shown.out


def test_the_sweep_finds_the_fastest_cut():
    row = gpu_forms.Row("out=", "float32", (1, 2, 4, 8))
    chosen = bench.arguments(["--sweep", "--rounds", "1"])
    said: list[str] = []
    report = gpu_sweep.sweep(chosen, CPU, said.append, MadeUp(), iter([row]))
    (record,) = report["sweep"]
    assert record["planned"] == "rows 4 shares 2 warps 1"
    assert record["best"] in record
    assert len(record) > 6
    assert "planned rows 4" in said[0]
