"""Training throughput: the fused kernel against the same model with eager rotation.

    python bench/train.py [--rounds 31] [--threads 1] [--json]

One step (forward, backward, AdamW) of the lab's transformer with RoPE, in turns with the same model
whose q and k are turned as most code does, ``x·cos + rotate_half(x)·sin`` from tables, and with the
same model without position. Times are medians of ratios within a round. The gate: both rotations
give the same logits and the same gradients.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk import RoPE, kernels
from ropewalk.core import Encoding, Rotary, token_positions
from ropewalk.lab import task
from ropewalk.lab.task import Batch
from ropewalk.lab.transformer import Transformer

SIZES = (
    {"dim": 64, "heads": 4, "layers": 2, "tokens": 128, "batch": 16},
    {"dim": 256, "heads": 4, "layers": 4, "tokens": 512, "batch": 4},
)
VOCABULARY = 96
GATE = 1e-4
"""Largest difference of logits and of gradients, over their largest value."""


class Usual(Rotary):
    """RoPE as most models write it, tables computed in each call."""

    def __init__(self, head_dim: int, base: float = 10000.0) -> None:
        super().__init__()
        self.head_dim = head_dim
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        self.register_buffer("inv_freq", base**-exponents, persistent=False)

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q turned."""
        where = token_positions(positions, offset, q, 1)
        angles = where[..., None].float() * self.get_buffer("inv_freq")
        angles = torch.cat([angles, angles], -1)
        one, other = q.chunk(2, -1)
        return q * angles.cos() + torch.cat([-other, one], -1) * angles.sin()

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k turned."""
        return self.encode_q(k, positions, offset=offset)

    def reference(self, x: Sequence[float], position: int | Sequence[int]) -> list[float]:
        """The same by ropewalk."""
        return RoPE(self.head_dim).reference(x, position)


def model_of(size: dict[str, int], encoding: Encoding | None) -> Transformer:
    torch.manual_seed(0)
    made = Transformer(
        VOCABULARY, None, dim=size["dim"], heads=size["heads"], layers=size["layers"]
    )
    made.encoding = encoding
    return made


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    optimizer.zero_grad()
    task.loss(model, batch).backward()
    optimizer.step()


def measured(size: dict[str, int], rounds: int) -> dict[str, Any]:
    """Ratios to the fused kernel's step, and the difference that the gate let pass."""
    width = size["dim"] // size["heads"]
    encodings = {"fused": RoPE(width), "eager": Usual(width), "no position": None}
    models = {name: model_of(size, encoding) for name, encoding in encodings.items()}
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(VOCABULARY, (size["batch"], size["tokens"] + 1), generator=generator)
    batch = Batch(ids[:, :-1], ids[:, 1:])
    apart = difference(*(copy.deepcopy(models[name]) for name in ("fused", "eager")), batch)
    if apart > GATE:
        raise SystemExit(f"{size}: fused and eager differ by {apart:.2g}; not timed")
    steps = {name: torch.optim.AdamW(model.parameters()) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    names = list(models)
    for i in range(rounds + 2):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            began = time.perf_counter()
            step(models[name], steps[name], batch)
            if i >= 2:
                times[name].append(time.perf_counter() - began)
    ratios = {
        name: statistics.median(a / b for a, b in zip(own, times["fused"], strict=True))
        for name, own in times.items()
    }
    return {**size, "difference": apart, "step over that of the fused kernel": ratios}


def difference(fused: nn.Module, eager: nn.Module, batch: Batch) -> float:
    """The largest difference of logits and gradients, over the largest value of each."""
    found = []
    for model in (fused, eager):
        logits = model(batch.inputs, None)
        task.loss(model, batch).backward()
        found.append([logits, *(p.grad for p in model.parameters())])
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(*found, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    found = {
        "kernel": kernels.active(),
        "threads": given.threads,
        "sizes": [measured(size, given.rounds) for size in SIZES],
    }
    if given.json:
        print(json.dumps(found))
        return 0
    print(f"kernel: {found['kernel']}; threads: {given.threads}")
    for each in found["sizes"]:
        shape = " ".join(f"{key}={each[key]}" for key in SIZES[0])
        ratios = each["step over that of the fused kernel"]
        shown = "  ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items())
        print(f"{shape}: {shown}  (largest difference {each['difference']:.1g})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
