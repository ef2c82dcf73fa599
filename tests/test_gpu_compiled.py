"""The Triton kernel compiled ahead of time for two GPUs: what its machine code uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parent.parent
CAPABILITIES = (80, 90)
REGISTERS = {"phases": 96, "tables": 96, "pages": 112, "normed": 128}
"""Of a thread, at most; at 128 a multiprocessor holds 512 threads."""


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory) -> dict[int, list[dict[str, Any]]]:
    """The reports of tests/ahead.py by capability; both compile at the same time, from nothing."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    running = {}
    for capability in CAPABILITIES:
        environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp(f"sm{capability}"))
        running[capability] = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "ahead.py"), str(capability)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    found = {}
    for capability, process in running.items():
        out, complaints = process.communicate(timeout=900)
        assert process.returncode == 0, complaints[-3000:]
        found[capability] = json.loads(out)
    return found


@pytest.fixture(params=CAPABILITIES)
def reports(request, machine_code) -> list[dict[str, Any]]:
    """Of every case but the one that is to spill, which comes last."""
    return machine_code[request.param][:-1]


def named(report: dict[str, Any]) -> str:
    return f"{report['case']} cut {report['cut']}"


def test_every_variant_is_there(reports):
    seen = {(r["case"]["dtype"], r["case"]["layout"], r["case"]["kernel"]) for r in reports}
    assert len(seen) == 4 * 2 * 2 + 2 * 4 + 1
    assert len({tuple(r["cut"].values()) for r in reports}) >= 8


def test_nothing_spills(reports):
    for report in reports:
        assert report["spills"] == 0, named(report)
        assert report["stack"] == 0, named(report)
        assert report["registers"] <= REGISTERS[report["case"]["kernel"]], named(report)


def test_spills_would_be_seen(machine_code):
    for capability in CAPABILITIES:
        planted = machine_code[capability][-1]
        assert planted["spills"] > 100
        assert planted["stack"] > 100


def test_loads_and_stores_are_of_16_bytes(reports):
    """Wherever a head is as wide; a pair of narrow lanes cannot be."""
    for report in reports:
        if report["case"]["q"][-2:] == [4096, 128]:
            kinds = {i for i in report["instructions"] if i.startswith(("LDG", "STG"))}
            # 64-bit loads are those of positions, steps and slots, narrower ones those of weights.
            few = {"LDG.E.64"}
            if report["case"]["kernel"] == "normed":
                few |= {"LDG.E", "LDG.E.U16"}
            assert {"LDG.E.128", "STG.E.128"} <= kinds, named(report)
            assert kinds <= {"LDG.E.128", "STG.E.128"} | few, named(report)


def test_float32_arithmetic_has_no_double_in_it(reports):
    """Double is slow on many GPUs. The one conversion is that of the factor, once a program."""
    for report in reports:
        double = {i for i in report["instructions"] if i[:4] in ("DADD", "DMUL", "DFMA", "DSET")}
        assert bool(double) == (report["case"]["dtype"] == "float64"), named(report)


def test_bfloat16_is_rounded_to_nearest(reports):
    """The interpreter truncates, so what a GPU does is read in the code: no rounding mode named."""
    for report in reports:
        if report["case"]["dtype"] == "bfloat16":
            to_bfloat16 = {i for i in report["instructions"] if "F2F" in i and "BF16" in i}
            assert to_bfloat16, named(report)
            assert not [i for i in to_bfloat16 if ".RZ" in i or ".RM" in i or ".RP" in i]
