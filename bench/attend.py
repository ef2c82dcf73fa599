"""attend against plain scaled_dot_product_attention: time and peak memory, behind a gate.

    python bench/attend.py [--tokens 16384] [--rounds 3] [--dtype float32] [--window N] [--json]

The gate compares sampled rows of every form with a dense float64 attention; a form that is wrong
is not timed. Times are the medians of ratios within a round; peak memory is what a fresh process
needs beyond its inputs, forward and backward.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk import RoPE, attend
from ropewalk.attention import path
from ropewalk.encodings.bias import ALiBi

Form = Callable[[Tensor, Tensor, Tensor], Tensor]
GATE = {torch.float32: 2e-4, torch.bfloat16: 3e-2}
"""Largest error of a value; the inputs are standard normal."""


def main() -> int:
    options = parsed()
    if options.measure:
        print(json.dumps(peak(options, options.measure)))
        return 0
    gated = gate(options)
    wrong = {name: error for name, (error, right) in gated.items() if not right}
    if wrong:
        print(f"wrong, and not timed: {wrong}", file=sys.stderr)
        return 1
    found = {"tokens": options.tokens, "dtype": options.dtype, "window": options.window}
    found["error"] = {name: error for name, (error, _) in gated.items()}
    q, k, *_ = inputs(options)
    found["path"] = {
        name: path(q, k, encoding, window=options.window)._asdict()
        for name, encoding in encodings(options).items()
    }
    found["forward"] = ratios(options, backward=False)
    found["forward and backward"] = ratios(options, backward=True)
    found["peak memory"] = memory(options)
    if options.json:
        print(json.dumps(found))
        return 0
    for key in ("error", "forward", "forward and backward", "peak memory"):
        print(f"{key:22}", *(f"{n} {x:.3g}" for n, x in found[key].items()), sep="  ")
    for name, chosen in found["path"].items():
        print(f"{name}: {chosen['name']}: {chosen['why']}")
    return 0


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--window", type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def encodings(options: argparse.Namespace) -> dict[str, ALiBi | RoPE]:
    return {"alibi": ALiBi(options.heads), "rope": RoPE(options.head_dim)}


def forms(options: argparse.Namespace) -> dict[str, Form]:
    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def with_(encoding: ALiBi | RoPE) -> Form:
        return lambda q, k, v: attend(q, k, v, encoding, window=options.window)

    return {"plain": plain} | {name: with_(e) for name, e in encodings(options).items()}


def inputs(options: argparse.Namespace) -> list[Tensor]:
    torch.manual_seed(0)
    shape = (1, options.heads, options.tokens, options.head_dim)
    return [torch.randn(shape).to(getattr(torch, options.dtype)) for _ in range(4)]


def gate(options: argparse.Namespace) -> dict[str, tuple[float, bool]]:
    """The largest error of sampled rows, and whether it passes."""
    q, k, v, _ = inputs(options)
    rows = torch.linspace(0, options.tokens - 1, 9).long()
    key = torch.arange(options.tokens)
    found = {}
    for name, form in forms(options).items():
        apart = rows[:, None] - key
        allowed = apart >= 0
        if options.window is not None and name != "plain":
            allowed &= apart < options.window
        a, b = q.double(), k.double()
        if name == "rope":
            rope = RoPE(options.head_dim)
            a, b = rope.encode_q(a), rope.encode_k(b)
        logits = a[:, :, rows] @ b.mT * options.head_dim**-0.5
        if name == "alibi":
            slopes = torch.tensor(
                [2.0 ** (-8 * (h + 1) / options.heads) for h in range(options.heads)],
                dtype=torch.float64,
            )
            logits = logits - slopes[:, None, None] * apart
        expected = logits.masked_fill(~allowed, float("-inf")).softmax(-1) @ v.double()
        with torch.no_grad():
            error = (form(q, k, v)[:, :, rows].double() - expected).abs().max().item()
        found[name] = (error, error <= GATE[q.dtype])
    return found


def ratios(options: argparse.Namespace, backward: bool) -> dict[str, float]:
    """Median time of each form over that of the plain one in the same round."""
    *tensors, grad = inputs(options)
    leaves = [x.requires_grad_(backward) for x in tensors]
    taken: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        seconds = {}
        for name, form in forms(options).items():
            for leaf in leaves:
                leaf.grad = None
            begin = time.perf_counter()
            out = form(*leaves)
            if backward:
                out.backward(grad)
            seconds[name] = time.perf_counter() - begin
        for name, one in seconds.items():
            taken.setdefault(name, []).append(one / seconds["plain"])
    return {name: statistics.median(many) for name, many in taken.items()}


def peak(options: argparse.Namespace, name: str) -> int:
    """Bytes that one form needs at its peak beyond its inputs, forward and backward."""
    *tensors, grad = inputs(options)
    leaves = [x.requires_grad_() for x in tensors]
    form = forms(options)[name]
    small = [x[:, :, :64].detach().requires_grad_() for x in leaves]
    form(*small).sum().backward()  # threads and libraries
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    form(*leaves).backward(grad)
    return _status("VmHWM") - before


def _status(key: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"{key}:\s+(\d+) kB", text)
    assert found is not None
    return int(found.group(1)) * 1024


def memory(options: argparse.Namespace) -> dict[str, float]:
    """The peak of each form over that of the plain one, each in a process of its own."""
    given = [f"--{k.replace('_', '-')}={v}" for k, v in vars(options).items() if _passed(k, v)]
    peaks = {
        name: int(
            subprocess.run(
                [sys.executable, __file__, *given, f"--measure={name}"],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for name in forms(options)
    }
    return {name: bytes_ / peaks["plain"] for name, bytes_ in peaks.items()}


def _passed(key: str, value: object) -> bool:
    return key not in ("json", "measure") and value is not None


if __name__ == "__main__":
    raise SystemExit(main())
