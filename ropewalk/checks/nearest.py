"""Distances between codes, exact where they are small."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SAME = 1e-6
"""Codes nearer than this share of the RMS code count as one."""

_BLOCK = 256


def rms(codes: Tensor) -> float:
    """Root mean square norm of codes ``[n, lanes]``."""
    return codes.square().sum(-1).mean().sqrt().item()


def closest(codes: Tensor) -> float:
    """The smallest distance between two of the codes ``[n, lanes]``.

    Matrix products find each row's candidate; its distance is then recomputed from the difference,
    because |a|² + |b|² − 2a·b loses half of the digits near 0.
    """
    centred = codes - codes.mean(0)
    squares = centred.square().sum(-1)
    best = math.inf
    for start in range(0, len(codes), _BLOCK):
        rows, later = centred[start : start + _BLOCK], centred[start:]
        gaps = torch.addmm(squares[start:], rows, later.T, alpha=-2)  # + |row|², which is common
        itself = torch.ones_like(gaps[:, : len(rows)], dtype=torch.bool).tril()
        gaps[:, : len(rows)].masked_fill_(itself, math.inf)
        gap, candidate = gaps.min(-1)
        partnered = gap < math.inf
        here = codes[start : start + _BLOCK][partnered]
        there = codes[start:][candidate[partnered]]
        if len(here):
            best = min(best, (here - there).norm(dim=-1).min().item())
    return best


def merged(codes: Tensor, distance: float) -> int:
    """How many codes ``[n, lanes]`` lie within ``distance`` of an earlier one."""
    gaps = torch.cdist(codes, codes, compute_mode="donot_use_mm_for_euclid_dist")
    return int(((gaps <= distance).tril(-1)).any(-1).sum())


def collisions(codes: Tensor, dtype: torch.dtype) -> int:
    """How many codes, rounded to ``dtype``, equal an earlier one."""
    rounded = codes.to(dtype).to(torch.float32)
    return len(codes) - len(torch.unique(rounded, dim=0))
