"""When two results are the same but for rounding: how far rounding alone moves this very model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.models.auditing.reader import Reader

FACTOR, NARROW_FACTOR = 50, 5
"""A difference this many times that of rounding the embeddings is none of rounding; in half
precision fewer times, or nothing could be told."""
TOO_LOUD = 0.25
"""Differences that must be allowed for rounding, and hide everything else."""


@dataclass(frozen=True)
class Rounding:
    """``moved`` is by how much rounding of the embeddings moves results; ``allowed`` by how much
    they may differ."""

    moved: float
    allowed: float

    @property
    def too_loud(self) -> str | None:
        """Why nothing can be told from results of this model, if so."""
        if math.isinf(self.moved):
            return "its results are not finite"
        if self.allowed <= TOO_LOUD:
            return None
        return (
            f"rounding alone moves its results by {self.moved:.1g} of the largest; load it in a "
            "wider dtype"
        )


def difference(a: Tensor, b: Tensor) -> float:
    """max-abs difference over max-abs of ``b``; inf where one is finite and the other is not."""
    x, y = a.detach().double(), b.detach().double()
    finite = x.isfinite()
    if bool((finite != y.isfinite()).any()):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    scale = y[finite].abs().max().item() or 1.0
    return (x[finite] - y[finite]).abs().max().item() / scale


def rounding_of(reader: Reader) -> Rounding:
    """How far results move when the embeddings are rounded otherwise; the worst of three draws."""
    ids = reader.tokens(2, 12)
    eps = max(torch.finfo(reader.dtype).eps, 2.0**-23)  # tables are float32 in any model
    plain = reader(ids).values
    table = reader.embedding()
    assert table is not None
    worst = float("inf") if bool(plain.isnan().any()) else 0.0
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)

        def shaken(_m: object, _a: object, out: Tensor, g: torch.Generator = generator) -> Tensor:
            draw = torch.randn(out.shape, generator=g).to(out.device)
            return (out.double() * (1 + 2 * eps * draw.double())).to(out.dtype)

        handle = table.register_forward_hook(shaken)
        try:
            worst = max(worst, difference(reader(ids).values, plain))
        finally:
            handle.remove()
    narrow = eps > 1e-4
    return Rounding(worst, NARROW_FACTOR * worst if narrow else max(FACTOR * worst, 100 * eps))
