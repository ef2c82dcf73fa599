"""What encodings with a transform per head share: heads, turns by tables, matrices by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk.encodings.autocast import without_autocast
from ropewalk.encodings.tables import spread
from ropewalk.kernels import rotate_by
from ropewalk.spectra import Layout


def check_vectors(x: Tensor, head_dim: int, heads: int) -> int:
    """How many heads of x share one of the encoding's ``heads``.

    Raises:
        TypeError: x is not a real floating tensor.
        ValueError: x is not ``[..., heads · group, tokens, head_dim]``.
    """
    if not isinstance(x, Tensor) or not x.dtype.is_floating_point:
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a real floating tensor, got {kind}")
    if x.dim() < 2 or x.shape[-1] != head_dim:
        raise ValueError(
            f"x has shape {tuple(x.shape)}; this encoding turns [..., heads, tokens, {head_dim}]"
        )
    own = x.shape[-3] if x.dim() > 2 else 1
    if own % heads:
        raise ValueError(
            f"x has {own} heads, not a multiple of heads={heads}; heads= counts those of k, each "
            "serving an equal group of q's: build the encoding with the number of heads of k"
        )
    return own // heads


def turned_by_tables(
    x: Tensor, cos: Tensor, sin: Tensor, layout: Layout, inverse: bool = False
) -> Tensor:
    """x ``[..., heads · group, T, head_dim]`` turned by tables ``[..., heads, T, pairs]``."""
    return rotate_by(x, *spread(x, cos, sin, per_head=True), layout=layout, inverse=inverse)


def by_blocks(x: Tensor, matrices: Tensor) -> Tensor:
    """Every block of lanes multiplied by its matrix, in the dtype of the matrices.

    Args:
        x: ``[..., heads · group, T, blocks · columns]``, or ``[T, blocks · columns]`` of one head.
        matrices: ``[heads, blocks, rows, columns]``.

    Returns:
        ``[..., heads · group, T, blocks · rows]``.
    """
    heads, blocks, out, columns = matrices.shape
    lanes = x.to(matrices.dtype).unflatten(-1, (blocks, columns))
    lanes = (lanes if x.dim() > 2 else lanes.unsqueeze(0)).unflatten(-4, (heads, -1))
    lanes = lanes.movedim((-5, -2), (0, 1))  # [heads, blocks, ..., group, T, columns]
    rows = math.prod(lanes.shape[2:-1])
    flat = lanes.reshape(heads * blocks, rows, columns)
    with without_autocast(x):
        mixed = torch.bmm(
            functional.pad(flat, (0, 0, 0, -rows % _ROWS)), matrices.flatten(0, 1).transpose(1, 2)
        )
    mixed = mixed[:, :rows].reshape(*lanes.shape[:-1], out).movedim((0, 1), (-5, -2))
    mixed = mixed.flatten(-5, -4).flatten(-2)
    return mixed if x.dim() > 2 else mixed.squeeze(0)


_ROWS = 64
"""Products have a multiple of this many rows: BLAS adds up shorter ones in another order, and the
bits of a token would depend on how many others there are."""


def skew(entries: Tensor) -> Tensor:
    """A − Aᵀ of square matrices, in float64."""
    wide = entries.to(torch.float64)
    return wide - wide.transpose(-1, -2)


def by_exponential(exponent: Sequence[Sequence[float]], x: Sequence[float]) -> list[float]:
    """exp(exponent)·x in float64 loops."""
    matrix = _exponential(tuple(map(tuple, exponent)))
    return [sum(entry * value for entry, value in zip(row, x, strict=True)) for row in matrix]


@lru_cache(maxsize=1 << 12)
def _exponential(exponent: tuple[tuple[float, ...], ...]) -> list[list[float]]:
    """The power series of the exponent halved often enough, and then squared as often."""
    size = max(sum(abs(entry) for entry in row) for row in exponent)
    halvings = max(0, math.frexp(size)[1] + 2)
    small = [[math.ldexp(entry, -halvings) for entry in row] for row in exponent]
    count = range(len(exponent))
    total = [[float(i == j) for j in count] for i in count]
    term = total
    for n in range(1, 16):  # rows of small add up to at most ¼, and 4⁻¹⁵ / 15! is nothing
        term = [[value / n for value in row] for row in _product(term, small)]
        total = [list(map(float.__add__, *rows)) for rows in zip(total, term, strict=True)]
    for _ in range(halvings):
        total = _product(total, total)
    return total


def _product(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> list[list[float]]:
    columns = list(zip(*b, strict=True))
    return [[sum(map(float.__mul__, row, column)) for column in columns] for row in a]
