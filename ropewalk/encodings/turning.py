"""What encodings with a transform per head share: head counts checked, pairs turned by tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from ropewalk.kernels import rotate_by
from ropewalk.kernels.plain import broadcast_tables
from ropewalk.spectra import Layout, exact_angle
from ropewalk.spectra.lanes import pair_slices


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
    cos, sin = (broadcast_tables(t, x, head_tables=True) for t in (cos, sin))
    cos, sin = (t[(None,) * (x.dim() - t.dim())] for t in (cos, sin))
    return rotate_by(x, cos, sin, layout=layout, inverse=inverse)


def turned_by_loop(
    x: Sequence[float],
    position: int | Sequence[int],
    freqs: Sequence[Sequence[float]],
    layout: Layout,
    unit: float = 1.0,
) -> list[float]:
    """One head vector turned pair by pair in float64, angles reduced exactly.

    Args:
        x: all lanes, two a pair.
        position: an int, or one per axis.
        freqs: ``[axes][pairs]``.
        layout: how lanes pair.
        unit: of the positions.
    """
    where = (position,) if isinstance(position, int) else tuple(position)
    first, second = pair_slices(len(x), len(x) // 2, layout, 0, "standard")
    lanes, result = range(len(x)), [float(value) for value in x]
    for pair, (a, b) in enumerate(zip(lanes[first], lanes[second], strict=True)):
        angle = math.fsum(
            exact_angle(p, row[pair], unit) for p, row in zip(where, freqs, strict=True)
        )
        cos, sin = math.cos(angle), math.sin(angle)
        result[a], result[b] = x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos
    return result
