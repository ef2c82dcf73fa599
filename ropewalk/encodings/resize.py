r"""A learned table for another number of positions, by interpolation between its rows.

.. math:: W'_i = \sum_j k\bigl(x_i - j\bigr)\, W_j, \qquad
          x_i = \bigl(i + \tfrac12\bigr)\,\frac{n}{n'} - \tfrac12

for n rows and n′ wanted, row indices clamped at the ends; k is the triangle (``"linear"``) or Keys'
cubic with a = −¾ (``"cubic"``), which PyTorch has too. With ``antialias`` k is stretched by n/n′
where rows become fewer, and its cubic has a = −½. With ``align_corners`` the first and the last row
stay: x_i = i·(n − 1)/(n′ − 1). A grid is treated so along both axes.

The target is a *size*. Given a scale factor instead, PyTorch samples at x_i = (i + ½)/scale − ½ and
rounds the size down, so code that adds 0.1 patches lest a patch be lost (DINO, DINOv2) also shifts
and stretches what it samples; here n/n′ is exact.

Source: An Image is Worth 16x16 Words (Dosovitskiy et al., 2020), §3.2, for resizing position tables
in two dimensions; Cubic Convolution Interpolation for Digital Image Processing (Keys, 1981) for k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk.core import wide_dtype
from ropewalk.encodings.width import check_dim

Interpolation = Literal["linear", "cubic"]
_KERNELS = {"linear": "bilinear", "cubic": "bicubic"}


def resize_table(
    table: Tensor,
    size: int | Sequence[int],
    *,
    grid: Sequence[int] | None = None,
    prefix: int = 0,
    mode: Interpolation = "cubic",
    antialias: bool = False,
    align_corners: bool = False,
) -> Tensor:
    """``table`` with rows for another length, or another grid.

    Args:
        table: ``[..., rows, dim]``; a grid lies row by row, the last axis fastest.
        size: the rows wanted, or (height, width).
        grid: (height, width) of the table; if None and ``size`` is a pair, the table is a square.
        prefix: leading rows that stay as they are: class tokens, registers.
        mode: ``"linear"`` or ``"cubic"``; in two dimensions bilinear or bicubic.
        antialias: average over the rows that fall together, where they become fewer.
        align_corners: the first and last row stay; otherwise rows are cells with a width.

    Returns:
        ``[..., prefix + rows wanted, dim]`` in the dtype of table, computed in at least float32;
        differentiable. The same size gives a copy.

    Raises:
        TypeError: table is not floating, or a size is not an int.
        ValueError: a size is below 1, or does not fit the rows.
    """
    if not isinstance(table, Tensor) or not table.dtype.is_floating_point or table.dim() < 2:
        raise TypeError("table must be a floating tensor [..., rows, dim]")
    if mode not in _KERNELS:
        raise ValueError(f"mode={mode!r} is unknown; use one of {tuple(_KERNELS)}")
    prefix = 0 if prefix == 0 else check_dim(prefix, "prefix")
    rows, dim = table.shape[-2] - prefix, table.shape[-1]
    if rows < 1:
        raise ValueError(f"prefix={prefix} leaves none of the {table.shape[-2]} rows")
    target = _target(size)
    source = _source(rows, grid, flat=isinstance(size, int))
    if target == source:
        return table.clone()
    kept, moving = table[..., :prefix, :], table[..., prefix:, :]
    planes = moving.to(wide_dtype(table.dtype)).reshape(-1, *source, dim).permute(0, 3, 1, 2)
    resized = functional.interpolate(
        planes,
        size=target,
        mode=_KERNELS[mode],
        align_corners=align_corners,
        antialias=antialias,
    )
    moved = resized.permute(0, 2, 3, 1).reshape(*table.shape[:-2], -1, dim)
    return torch.cat((kept, moved.to(table.dtype)), dim=-2)


def _target(size: int | Sequence[int]) -> tuple[int, int]:
    """Height and width wanted; a line of rows is a column."""
    return (_side("size", size), 1) if isinstance(size, int) else _pair("size", size)


def _source(rows: int, grid: Sequence[int] | None, flat: bool) -> tuple[int, int]:
    """Height and width of the table."""
    if flat:
        if grid is not None:
            raise ValueError(f"grid={grid!r} with one size; give size=(height, width) too")
        return rows, 1
    if grid is None:
        side = math.isqrt(rows)
        if side * side != rows:
            raise ValueError(
                f"grid=None takes the table for a square, and {rows} rows are none; state "
                "grid=(height, width), and prefix= if it has class tokens or registers"
            )
        return side, side
    height, width = _pair("grid", grid)
    if height * width != rows:
        raise ValueError(
            f"grid=({height}, {width}) has {height * width} places; the table has {rows} rows "
            "after its prefix"
        )
    return height, width


def _pair(name: str, sides: Sequence[int]) -> tuple[int, int]:
    if isinstance(sides, (str, float)) or not isinstance(sides, Sequence) or len(sides) != 2:
        raise TypeError(
            f"{name}={sides!r} must be an int or (height, width): sizes, never a scale factor"
        )
    return _side(f"{name}[0]", sides[0]), _side(f"{name}[1]", sides[1])


def _side(name: str, side: int) -> int:
    try:
        return check_dim(side, name, at_most=1 << 40)
    except TypeError as error:
        raise TypeError(f"{error}; a size, never a scale factor") from None
