"""Turning by tables: what encodings share whose cos and sin are more than a spectrum's phases."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.core import token_positions
from ropewalk.kernels import rotate_by
from ropewalk.kernels.plain import broadcast_tables
from ropewalk.kernels.rotate import spectrum_lanes
from ropewalk.spectra import Spectrum

_WITHOUT_FLOAT64 = frozenset({"mps"})


def places(
    x: Tensor, positions: Tensor | None, offset: int | Tensor | None, spectrum: Spectrum
) -> Tensor:
    """The int64 positions of the tokens of x, once x has the lanes that ``spectrum`` turns.

    Raises:
        TypeError, ValueError: x or positions do not fit.
    """
    spectrum_lanes(spectrum, x)
    return token_positions(positions, offset, x, spectrum.axes)


def turn(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    spectrum: Spectrum,
    *,
    per_head: bool = False,
    inverse: bool = False,
) -> Tensor:
    """x turned by tables ``[..., tokens, pairs]``, or ``[..., heads, tokens, pairs]`` per head."""
    cos, sin = spread(x, cos, sin, per_head=per_head or spectrum.heads is not None)
    return rotate_by(
        x,
        cos,
        sin,
        layout=spectrum.layout,
        lane_offset=spectrum.lane_offset,
        pairing=spectrum.pairing,
        inverse=inverse,
    )


def spread(x: Tensor, *tables: Tensor, per_head: bool = False) -> tuple[Tensor, ...]:
    """Tables shaped so that they multiply lanes of x, heads and batch where those of x stand."""
    shaped = tuple(broadcast_tables(t, x, per_head) for t in tables)
    if shaped[0].dim() <= 2:
        return shaped
    return tuple(t[(None,) * (x.dim() - t.dim())] for t in shaped)


def widest(device: torch.device) -> torch.dtype:
    """float64 where the device has it."""
    return torch.float32 if device.type in _WITHOUT_FLOAT64 else torch.float64
