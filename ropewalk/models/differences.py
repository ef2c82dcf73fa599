r"""The difference of two rotations, in exact steps: one spectrum that turns keys from one to other.

.. math:: p'·s_\text{new} - p·s_\text{old} \pmod{2^{64}}

is the phase of a spectrum whose axes are those of both sides. Where the steps are alike, positions
are subtracted first; where the positions are, the steps. Int64 wraps, and so do phases.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ropewalk.kernels import Steps
from ropewalk.models.sides import ratio
from ropewalk.spectra import Spectrum


def positions_between(
    old: Spectrum, new: Spectrum, positions: Tensor, new_positions: Tensor | None
) -> Tensor:
    """What the steps of :func:`steps_between` are multiplied with."""
    if new_positions is None:
        return positions
    if old.steps == new.steps:
        return new_positions - positions
    p, q = (
        t[..., None] if spectrum.axes == 1 else t
        for t, spectrum in ((positions, old), (new_positions, new))
    )
    lead = torch.broadcast_shapes(p.shape[:-1], q.shape[:-1])
    return torch.cat([q.expand(*lead, -1), p.expand(*lead, -1)], dim=-1)


@lru_cache(maxsize=256)
def steps_between(old: Spectrum, new: Spectrum, stays: bool, device: torch.device) -> Steps:
    """The steps of a move: of one side, of their difference, or of both.

    The tensor is exact; its spectrum says the shape, the lanes and the factor, its frequencies
    being those of the steps to one float64 rounding.
    """
    same = old.steps == new.steps
    heads = max(len(old.steps), len(new.steps))
    rows = [
        _rows(_head(old.steps, h), _head(new.steps, h), stays, same and not stays)
        for h in range(heads)
    ]
    per_head = old.heads is not None or new.heads is not None
    with torch.inference_mode(False):
        tensor = torch.tensor(rows if per_head else rows[0], dtype=torch.int64, device=device)
    freqs = [[[step * (2 * math.pi * 2.0**-64) for step in row] for row in m] for m in rows]
    carrier = Spectrum(
        freqs if per_head else freqs[0],  # pyright: ignore[reportArgumentType]
        old.head_dim,
        layout=old.layout,
        lane_offset=old.lane_offset,
        pairing=old.pairing,
        attention_factor=ratio(old, new),
    )
    return Steps(tensor, carrier)


Rows = tuple[tuple[int, ...], ...]


def _head(matrices: tuple[Rows, ...], head: int) -> Rows:
    return matrices[head if len(matrices) > 1 else 0]


def _rows(old: Rows, new: Rows, stays: bool, same: bool) -> Rows:
    if same:
        return new
    if stays:
        return tuple(
            tuple(_signed(b - a) for a, b in zip(*rows, strict=True))
            for rows in zip(old, new, strict=True)
        )
    return (*new, *(tuple(_signed(-a) for a in row) for row in old))


def _signed(value: int) -> int:
    """The int64 that is ``value`` modulo 2⁶⁴."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
