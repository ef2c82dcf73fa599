"""The GPU kernel against a copy of the same bytes and against how others rotate, in four minutes.

    PYTHONPATH=. python bench/gpu.py [--json] [--rounds N] [--seconds N] [--only TEXT] [--sweep]

First the kernel is checked on this device; if a check fails no speed is reported and the exit
status is 1. Then each row is timed in interleaved rounds: a figure is the median over rounds of the
time of a form ÷ that of the copy in the same round, with its error against float64 beside it. The
cache is flushed before every timed call, except that decode runs hot, as it does in use.
``--sweep`` times other cuts into programs beside the one that ropewalk plans. ``--json`` prints one
document on stdout and the table on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gpu_checks import checks
from gpu_forms import COPY, Form, Row, exact, forms, rows
from gpu_sweep import sweep
from gpu_timing import Calls, Clock, Events, Timing, measure
from torch import Tensor

import ropewalk
from ropewalk.kernels import devices

FLUSH = 256 << 20
"""Bytes written before a timed call: several times the cache of any GPU."""
CALLS = 50
FACTOR = {"float32": 1e-5, "bfloat16": 2**-6, "float16": 2**-9, "float64": 1e-11}
"""The error that a form may have; angles are up to 8,192, which float32 tables round."""
LOSSY = 4


def unusable() -> str | None:
    """Why there is nothing to measure here, in one line, or None."""
    if not torch.cuda.is_available():
        return "no CUDA or ROCm GPU here; `ropewalk bench rotate` measures the CPU's kernel"
    found = devices.kernel_on("cuda")
    return None if found.compiled else f"the GPU kernel is not in use: {found.name}"


def gate(row: Row, form: Form, x: Tensor, expected: Tensor) -> tuple[float, bool]:
    """(error relative to the largest value, whether it is small enough)."""
    found = form.run(x.clone())
    error = ((found.double() - expected).abs().max() / expected.abs().max()).item()
    return error, error <= FACTOR[row.dtype] * (LOSSY if form.lossy else 1)


def timed(
    row: Row, device: torch.device, rounds: int, clock: Clock | None = None
) -> dict[str, Any]:
    """The measurements of a row: for each form its timing, error and gate."""
    x = row.x(device)
    where = torch.arange(row.shape[2], device=device)
    if row.mode.startswith("decode"):
        where = where + 4095
    back = row.mode == "forward+backward"
    expected = exact(row, x, where, back)
    with torch.set_grad_enabled(back):
        made = forms(row, x, where)
        gates = {n: gate(row, f, x, expected) for n, f in made.items() if n != COPY}
        del expected
        # A form that is wrong is not timed.
        calls = {n: _call(f, x.clone()) for n, f in made.items() if gates.get(n, (0, True))[1]}
        if row.mode == "decode, graph":
            calls = {n: graphed(call) for n, call in calls.items()}
        timings = measure(calls, clock or _clock(row, device), rounds)
    size = x.numel() * x.element_size()
    return {
        "name": row.name,
        **row._asdict(),
        "bytes": (4 if row.mode == "into pages" else 2) * size,  # there values go beside keys
        "forms": {n: _entry(timings.get(n), gates.get(n)) for n in made},
    }


def _call(form: Form, x: Tensor):
    return lambda: form.run(x)


def _clock(row: Row, device: torch.device) -> Clock:
    if row.mode == "decode":
        return Calls(torch.cuda.synchronize, CALLS)
    return Events(device, 0 if row.mode.startswith("decode") else FLUSH)


def graphed(call):
    """``call`` as a captured graph: what the device does, without waiting for Python."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _entry(timing: Timing | None, gated: tuple[float, bool] | None) -> dict[str, Any]:
    error, right = gated or (0.0, True)
    entry: dict[str, Any] = {"error": error, "right": right}
    return entry if timing is None else {**entry, **timing._asdict()}


def run(
    chosen: argparse.Namespace, device: torch.device, say: Callable[[str], None]
) -> dict[str, Any]:
    """Checks, then rows until the time is used up; rows left out are named."""
    begin = time.perf_counter()
    report = {
        "device": torch.cuda.get_device_name(device),
        **versions(),
        "rows": [],
        "left_out": [],
    }
    found = list(checks(device))
    report["checks"] = [{**check._asdict(), "holds": check.holds} for check in found]
    say("\n".join(check.text for check in found if not check.holds) or f"{len(found)} checks hold")
    if not all(check.holds for check in found):
        return report
    for row in rows():
        if chosen.only not in row.name:
            continue
        if time.perf_counter() - begin > chosen.seconds:
            report["left_out"].append(row.name)
            continue
        report["rows"].append(timed(row, device, chosen.rounds))
        say(table(report["rows"][-1]))
    report["seconds"] = time.perf_counter() - begin
    return report


def versions() -> dict[str, str]:
    """What ran."""
    import triton
    from gpu_peers import installed

    return {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "kernel": ropewalk.kernels.active(),
        **installed(),
    }


def table(row: dict[str, Any]) -> str:
    """A row as text."""
    lines = [row["name"]]
    for name, form in row["forms"].items():
        if "ratio" not in form:
            lines.append(f"  {name:<24} WRONG by {form['error']:.1e}; not timed")
            continue
        rate = row["bytes"] / form["seconds"] / 1e12
        lines.append(
            f"  {name:<24} {form['ratio']:6.2f}× copy  {form['seconds'] * 1e6:9.1f} µs  "
            f"{rate:6.2f} TB/s  error {form['error']:.1e}{'  noisy' * form['noisy']}"
        )
    return "\n".join(lines)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=200.0, help="start no row after this")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name holds it")
    parser.add_argument("--sweep", action="store_true", help="time other cuts into programs")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    """Exit status: 0 measured, 1 a check failed, 2 nothing to measure here."""
    chosen = arguments(given)
    reason = unusable()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    say = partial(print, file=sys.stderr if chosen.json else sys.stdout, flush=True)
    device = torch.device("cuda", torch.cuda.current_device())
    report = (sweep if chosen.sweep else run)(chosen, device, say)
    say(f"{report['device']}, torch {torch.__version__}, {ropewalk.kernels.active()}")
    for name in report.get("left_out", []):
        say(f"left out for want of time: {name}")
    if chosen.json:
        print(json.dumps(report, indent=1))
    return 0 if all(check["holds"] for check in report.get("checks", [])) else 1


if __name__ == "__main__":
    sys.exit(main())
