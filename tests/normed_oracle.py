"""RMS norm and rotation from their definitions, and the tensors that their tests take."""

from __future__ import annotations

import math

import torch
from numeric_oracles import lane_pairs, loop_rotate
from torch import Tensor

from ropewalk.spectra import Spectrum


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)


def weight_of(lanes: int, dtype: torch.dtype = torch.float64, seed: int = 3) -> Tensor:
    return (1 + drawn(lanes, seed=seed) / 4).to(dtype)


def literal(
    x: Tensor, weight: Tensor | None, positions: Tensor, spectrum: Spectrum, eps: float
) -> Tensor:
    """x ``[batch, heads, tokens, lanes]`` number by number; positions ``[batch, tokens, axes]``."""
    rows = x.double().reshape(-1, x.shape[-1]).tolist()
    factors = [1.0] * x.shape[-1] if weight is None else weight.double().tolist()
    for row in rows:
        root = math.sqrt(math.fsum(v * v for v in row) / len(row) + eps)
        row[:] = [v / root * w for v, w in zip(row, factors, strict=True)]
    normed = torch.tensor(rows, dtype=torch.float64).reshape(x.shape)
    return loop_rotate(normed, positions, spectrum)


def definition(
    x: Tensor, weight: Tensor | None, positions: Tensor, spectrum: Spectrum, eps: float
) -> Tensor:
    """The same in differentiable operations, for ``[tokens]`` on one axis near 0, float64."""
    row = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    row = row if weight is None else row * weight
    frequencies = torch.tensor(spectrum.inv_freq, dtype=torch.float64)
    angles = positions[:, None].double() * frequencies
    cos, sin = (f(angles) * spectrum.attention_factor for f in (torch.cos, torch.sin))
    lanes = list(row.unbind(-1))
    for pair, (i, j) in enumerate(lane_pairs(spectrum)):
        c, s = cos[:, pair], sin[:, pair]
        lanes[i], lanes[j] = lanes[i] * c - lanes[j] * s, lanes[i] * s + lanes[j] * c
    return torch.stack(lanes, dim=-1)
