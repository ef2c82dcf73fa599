"""What position adds to one tile: channels where a bias has them, else numbers, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.arguments import narrowed
from ropewalk.attention.tiling import Tile
from ropewalk.core import Bias, Factors, wide_dtype


class Term(NamedTuple):
    """What position adds to one tile."""

    factors: Factors | None = None
    bias: Tensor | None = None


Terms = Callable[[Tile], Term]
Channels = Callable[[Tile], Factors | None]


def no_terms(tile: Tile) -> Term:
    """Nothing: position is in q and k already."""
    return Term()


def channels(encoding: Bias, q_positions: Tensor, kv_positions: Tensor) -> Channels:
    """The channels of a tile; None where keys stand on both sides, or the bias gives none."""

    def found(tile: Tile) -> Factors | None:
        if encoding.axes != 1:
            return None
        q = narrowed(q_positions, tile.q0, tile.q1, 1)
        k = narrowed(kv_positions, tile.k0, tile.k1, 1)
        after = _side(q, k, tile.rule)
        factors = None if after is None else encoding.factors(q, k, after=after)
        return None if factors is None else _four(factors)

    return found


def bias_terms(
    encoding: Bias,
    q_positions: Tensor,
    kv_positions: Tensor,
    dtype: torch.dtype,
    channels: Channels | None = None,
) -> Terms:
    """Channels where there are any, else numbers."""
    wide = wide_dtype(dtype)

    def terms(tile: Tile) -> Term:
        factors = None if channels is None else channels(tile)
        if factors is not None:
            return Term(factors=factors)
        q = narrowed(q_positions, tile.q0, tile.q1, encoding.axes)
        k = narrowed(kv_positions, tile.k0, tile.k1, encoding.axes)
        bias = encoding.bias(q, k, wide)
        return Term(bias=bias if bias.dim() == 4 else bias.unsqueeze(0))

    return terms


def _side(q: Tensor, k: Tensor, rule: str) -> bool | None:
    """False: keys stand at or before queries that may see them; True: after; None: both."""
    if bool((k.amax(-1) <= q.amin(-1)).all()):
        return False
    if rule == "causal" and bool((k.cummax(-1).values <= q).all()):
        return False
    return True if bool((k.amin(-1) >= q.amax(-1)).all()) else None


def _four(factors: Factors) -> Factors:
    """The same with a dimension of rows."""

    def rows(x: Tensor, dim: int) -> Tensor:
        return x if x.dim() == dim else x.unsqueeze(0)

    row = None if factors.row is None else rows(factors.row, 3)
    return Factors(rows(factors.q, 4), rows(factors.k, 4), row)
