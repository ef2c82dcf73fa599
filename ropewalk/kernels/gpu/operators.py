"""The operators that every kernel offers (:class:`ropewalk.kernels.native.Operators`), by Triton.

What does not fit raises RuntimeError, as the C++ operators do, and the careful way in
:mod:`ropewalk.kernels.rotate` says why in words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ropewalk.kernels import eager, gpu
from ropewalk.spectra.lanes import spelt


def _as_operator(function: Callable[..., None], *arguments: Any) -> None:
    try:
        function(*arguments)
    except ValueError as error:
        raise RuntimeError(str(error)) from None


def _where(x: Tensor, positions: Tensor | None, offset: int) -> Tensor:
    if positions is not None:
        return positions
    return torch.arange(x.shape[-2], device=x.device) + offset


def rotate(
    x: Tensor,
    out: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """x turned by phases, into out."""
    where = _where(x, positions, offset)
    _as_operator(gpu.rotate_out, x, out, where, steps, scale, *spelt(lanes))


def rotate_qk(
    q: Tensor,
    k: Tensor,
    q_out: Tensor,
    k_out: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """q and k turned by the same phases, in one launch."""
    where = _where(q, positions, offset)
    _as_operator(gpu.rotate_qk_out, q, k, q_out, k_out, where, steps, scale, *spelt(lanes))


def rotate_qk_(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """:func:`rotate_qk` in place."""
    rotate_qk(q, k, q, k, positions, offset, steps, scale, lanes)


def rotate_by(x: Tensor, out: Tensor, cosine: Tensor, sine: Tensor, lanes: int) -> None:
    """x turned by given tables, into out; tables that differ by heads go PyTorch's way."""
    if cosine.dim() == x.dim() > 2 and sine.shape == cosine.shape:
        if cosine.shape[-3] != 1:
            return eager.rotate_by(x, out, cosine, sine, lanes)
        cosine, sine = cosine.squeeze(-3), sine.squeeze(-3)
    _, first, second, lane_step = spelt(lanes)
    _as_operator(gpu.rotate_by_out, x, out, cosine, sine, first, second, lane_step)


def rotate_qk_by(
    q: Tensor,
    k: Tensor,
    q_out: Tensor,
    k_out: Tensor,
    cosine: Tensor,
    sine: Tensor,
    lanes: int,
) -> None:
    """q and k turned by given tables."""
    if q.shape[:-3] != k.shape[:-3] or q.dtype != k.dtype:
        raise RuntimeError("q and k differ in batch or dtype")
    rotate_by(q, q_out, cosine, sine, lanes)
    rotate_by(k, k_out, cosine, sine, lanes)


def phase_tables(
    positions: Tensor, steps: Tensor, scale: float, cosine: Tensor, sine: Tensor
) -> None:
    """cos and sin of the phases of positions."""
    _as_operator(gpu.phase_tables_out, positions, steps, scale, cosine, sine)


advise = gpu.advise
