"""Rotation against copying the same bytes and against transformers' eager form.

    python bench/rotate.py [--threads N] [--rounds N]

Each row is the median over rounds of time ÷ time of ``out.copy_(x)`` in the same round; the forms
take turns within a round. A row is printed only after its result agreed with a float64 reference. A
row whose median copy is more than twice its fastest says ``noisy``: run it again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

import ropewalk
from ropewalk.kernels import Steps
from ropewalk.spectra import geometric


def eager(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The usual form: x·cos + rotate_half(x)·sin with full-width tables."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def forms(x: Tensor, out: Tensor, steps: Steps) -> dict[str, Callable[[], Tensor]]:
    where = torch.arange(x.shape[-2])
    cos, sin = (t.repeat(1, 2).to(x.dtype) for t in steps.spectrum.tables(where))
    scratch = x.clone()
    return {
        "copy, out=": lambda: out.copy_(x),
        "ropewalk, out=": lambda: ropewalk.rotate(x, where, steps, out=out),
        "ropewalk, in place": lambda: ropewalk.rotate_(scratch, where, steps),
        "ropewalk, fresh": lambda: ropewalk.rotate(x, where, steps),
        "eager, fresh": lambda: eager(x, cos, sin),
    }


def measure(shape: tuple[int, ...], dtype: torch.dtype, rounds: int) -> None:
    x = torch.randn(shape).to(dtype)
    out = torch.zeros_like(x)
    steps = geometric(shape[-1]).on()
    exact = ropewalk.rotate(x.double(), None, steps)
    scale = exact.abs().max()
    error = ((ropewalk.rotate(x, None, steps).double() - exact).abs().max() / scale).item()
    if error > 2 * torch.finfo(dtype).eps:
        raise SystemExit(f"{dtype} {shape}: wrong by {error:.2g}; no speed is reported")
    timed = forms(x, out, steps)
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds + 3):
        for name, form in timed.items():
            start = time.perf_counter()
            form()
            seconds[name].append(time.perf_counter() - start)
    copies = seconds["copy, out="][3:]
    noisy = " noisy" if statistics.median(copies) > 2 * min(copies) else ""
    name = str(dtype).removeprefix("torch.")
    print(f"{name} {'×'.join(map(str, shape))}: error {error:.1e}{noisy}")
    for name, times in seconds.items():
        ratio = statistics.median(t / c for t, c in zip(times[3:], copies, strict=True))
        print(f"  {name:<20} {ratio:6.2f}× copy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=31)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print(f"kernel: {ropewalk.kernels.active()}; threads: {chosen.threads}")
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            for shape in ((1, 32, 4096, 128), (1, 32, 128, 128), (1, 32, 1, 128)):
                measure(shape, dtype, chosen.rounds)


if __name__ == "__main__":
    main()
