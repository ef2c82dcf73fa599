"""A fixed question whose answer must never change: what ``deterministic`` compares."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import probes
from ropewalk.checks.content import gaussian
from ropewalk.core import Additive, Bias, Contextual, Encoding, Rotary

_PLACES = (0, 1, 2, 3, 7, 31, 100, 255, 777, 1000, 2047, 5000, 8191, 100_003)


def fingerprint(encoding: Encoding, count: int) -> Tensor:
    """What the encoding does at a few positions below ``count``, in float32 and float64.

    Returns:
        float64, one dimension; float32 values are widened exactly.
    """
    parts = [_answer(encoding, count, dtype) for dtype in (torch.float32, torch.float64)]
    return torch.cat([part.flatten() for part in parts])


def _answer(encoding: Encoding, count: int, dtype: torch.dtype) -> Tensor:
    line = torch.tensor([p for p in _PLACES if p < count])
    places = probes.on_axes(line, encoding.axes)
    if isinstance(encoding, Additive):
        return probes.codes(encoding, places, dtype=dtype)
    if isinstance(encoding, Rotary):
        x = gaussian(1, encoding.head_dim, seed=80).expand(len(line), -1).to(dtype)
        return torch.stack([probes.vectors(encoding, x, places, side) for side in probes.SIDES])
    if isinstance(encoding, Bias):
        return probes.biases(encoding, places, places, dtype)
    if isinstance(encoding, Contextual):
        heads, dim = probes.contextual_size(encoding)
        q, k = gaussian(2, heads, 24, dim, seed=81).to(dtype)
        row = probes.on_axes(torch.arange(24), encoding.axes)
        return probes.read_biases(encoding, q, k, row, row)
    raise TypeError(f"{type(encoding).__name__} belongs to no family")


def disturb(encoding: Encoding, tokens: int, dtype: torch.dtype) -> None:
    """Use the encoding as others might have before: for so many tokens, in ``dtype``."""
    places = probes.on_axes(torch.arange(tokens), encoding.axes)
    if isinstance(encoding, Additive):
        probes.codes(encoding, places, dtype=dtype)
    elif isinstance(encoding, Rotary):
        x = gaussian(1, encoding.head_dim, seed=82).expand(tokens, -1).to(dtype)
        for side in probes.SIDES:
            probes.vectors(encoding, x, places, side)
    elif isinstance(encoding, Bias):
        probes.biases(encoding, places[-2:], places, dtype)
    elif isinstance(encoding, Contextual):
        heads, dim = probes.contextual_size(encoding)
        q, k = gaussian(2, heads, 48, dim, seed=83).to(dtype)
        row = probes.on_axes(torch.arange(48), encoding.axes)
        probes.read_biases(encoding, q, k, row, row)
