"""The vector by which an encoding tells a position from the others, whatever its family."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import probes
from ropewalk.checks.content import gaussian
from ropewalk.core import Additive, Bias, Contextual, Encoding, Rotary


def signatures(encoding: Encoding, positions: Tensor, length: int) -> Tensor:
    """One vector per position, ``[n, lanes]`` in float64.

    Additive: the code, in a sequence of ``length``. Rotary: one fixed generic vector transformed as
    q. Bias: all heads' bias at that causal offset, seen from position length − 1. Contextual: the
    same in a sequence of equal tokens.
    """
    if isinstance(encoding, Additive):
        return probes.codes(encoding, positions, length=length)
    if isinstance(encoding, Rotary):
        x = gaussian(1, encoding.head_dim, seed=1).expand(len(positions), -1)
        return probes.vectors(encoding, x, positions, "q").transpose(0, 1).flatten(1)
    if isinstance(encoding, Bias):
        query = probes.on_axes(torch.tensor([length - 1]), encoding.axes)
        return probes.biases(encoding, query, query - positions)[:, 0].T
    if isinstance(encoding, Contextual):
        heads, dim = probes.contextual_size(encoding)
        q = gaussian(heads, 1, dim, seed=2)
        k = gaussian(heads, 1, dim, seed=3).expand(-1, length, -1).contiguous()
        line = torch.arange(length)
        bias = probes.read_biases(encoding, q, k, line[-1:], line)[:, 0]
        return bias[:, length - 1 - positions].T
    raise TypeError(f"{type(encoding).__name__} belongs to no family")
