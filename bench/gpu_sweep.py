"""Other cuts of a rotation into programs beside the planned one, to set the plan's numbers by."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from gpu_forms import Row
from gpu_timing import COPY, Clock, Events, measure
from torch import Tensor

from ropewalk.kernels.gpu.launch import Prepared
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.plan import Plan
from ropewalk.kernels.gpu.prepare import phases_launch

FLUSH = 256 << 20


def swept() -> Iterator[Row]:
    """A prefill that a device holds at once, one that fills it many times, and few tokens."""
    for dtype in ("bfloat16", "float32"):
        for shape in ((1, 32, 4096, 128), (4, 32, 8192, 128), (1, 32, 128, 128), (64, 32, 1, 128)):
            yield Row("out=", dtype, shape)


def cuts(planned: Plan, heads: int) -> Iterator[Plan]:
    """The plan and its neighbours in rows, warps and shares of the heads."""
    for block_rows in {max(1, planned.block_rows * n // 2) for n in (1, 2, 4)}:
        for warps in {max(1, planned.warps * n // 2) for n in (1, 2, 4)}:
            for shares in {n for n in (1, 2, 4, 8, 16, 32) if heads % n == 0}:
                yield planned._replace(block_rows=block_rows, warps=warps, shares=shares)


def launches(row: Row, x: Tensor, out: Tensor) -> dict[str, Callable[[Tensor], object]]:
    """A form for the copy, one for the plan and one for each other cut."""
    steps = row.spectrum().on(x.device).tensor
    where = torch.arange(row.shape[2], device=x.device)
    lanes = Lanes(0, row.shape[-1] // 2, 1, False)
    known = (Operand.of(x, out),), Meta.of(where), Meta.of(steps), lanes
    planned = phases_launch(*known)
    assert planned is not None

    def form(cut: Plan) -> Callable[[Tensor], object]:
        prepared = Prepared(phases_launch(*known, cut), x.device)
        return lambda x: prepared(x, out, None, None, where, 0, steps, 1.0, 1.0)

    others = [cut for cut in cuts(planned.job.cut, row.shape[1]) if cut != planned.job.cut]
    return {
        COPY: lambda x: out.copy_(x),
        **{named(cut): form(cut) for cut in (planned.job.cut, *others)},
    }


def named(cut: Plan) -> str:
    """For people."""
    return f"rows {cut.block_rows} shares {cut.shares} warps {cut.warps}"


def sweep(
    chosen: argparse.Namespace,
    device: torch.device,
    say: Callable[[str], None],
    clock: Clock | None = None,
    rows: Iterator[Row] | None = None,
) -> dict[str, Any]:
    """For each row the ratio of every cut to the copy, the planned cut and the best."""
    report: dict[str, Any] = {"device": str(device), "sweep": []}
    for row in rows or swept():
        x = row.x(device)
        made = launches(row, x, torch.empty_like(x))
        clock = clock or Events(device, FLUSH)
        calls = {name: partial(form, x) for name, form in made.items()}
        ratios = {n: t.ratio for n, t in measure(calls, clock, min(chosen.rounds, 11)).items()}
        planned = list(made)[1]
        best = min((n for n in ratios if n != COPY), key=ratios.__getitem__)
        report["sweep"].append({"name": row.name, "planned": planned, "best": best, **ratios})
        say(
            f"{row.name}: planned {planned} {ratios[planned]:.2f}× copy, best {best} "
            f"{ratios[best]:.2f}×"
        )
    return report
