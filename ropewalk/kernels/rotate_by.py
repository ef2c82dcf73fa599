r"""Rotation by given cos and sin: for models that bring their own, and for learned frequencies.

The rotation is that of :mod:`ropewalk.kernels.rotate`, differentiable in x, cos and sin; whatever
the tables were computed from, learned frequencies or positions between integers, gets its gradient
through them.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ropewalk.kernels import fused
from ropewalk.kernels.arguments import (
    check_out,
    require_bool,
    require_changeable,
    require_tensor,
)
from ropewalk.kernels.derivatives import watched_by
from ropewalk.kernels.kinds import ordinary, require_dense
from ropewalk.kernels.plain import broadcast_tables, compute_dtype, turn
from ropewalk.kernels.sharded import is_distributed, rotate_shards_by
from ropewalk.spectra.lanes import LAYOUTS, number, pair_slices


@lru_cache(maxsize=1024)
def _number(head_dim: int, pairs: int, layout: str, lane_offset: int, pairing: str) -> int:
    return number(pair_slices(head_dim, pairs, layout, lane_offset, pairing))


def _named(pairing: str | None) -> str:
    return "standard" if pairing is None else pairing


def _lanes(
    x: Tensor, cos: object, layout: str, lane_offset: int, pairing: str | None
) -> int | None:
    """The lanes as the kernel's number; None where an argument is not as it should be."""
    if not isinstance(cos, Tensor) or cos.is_nested or not cos.dim() or not x.dim():
        return None
    if type(lane_offset) is not int:
        return None
    width, pairs = x.shape[-1], cos.shape[-1]
    if type(width) is not int or type(pairs) is not int:
        return None
    try:
        return _number(width, pairs, layout, lane_offset, _named(pairing))
    except (TypeError, ValueError):
        return None


def rotate_by(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    layout: str = "half",
    lane_offset: int = 0,
    pairing: str | None = None,
    inverse: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """x turned by given tables.

    Args:
        x: ``[..., heads, tokens, head_dim]``.
        cos, sin: ``[..., tokens, rotary_dim/2]`` for all heads, or with a head dimension of 1 or
            heads and as many dimensions as x. See :func:`halve_tables` for duplicated tables.
        layout, lane_offset, pairing: as in :class:`Spectrum`.
        inverse: turn back: the transpose divided by cos² + sin², as the tables may carry a factor.
        out: as in :func:`rotate`.

    Raises:
        TypeError, ValueError: shapes or dtypes do not fit.
    """
    require_tensor(x)
    if inverse is False and isinstance(sin, Tensor) and not torch.compiler.is_compiling():
        lanes = _lanes(x, cos, layout, lane_offset, pairing)
        turned = None if lanes is None else fused.one_by(x, cos, sin, lanes, out)
        if turned is None and lanes is not None and out is None:
            turned = watched_by(x, cos, sin, lanes)
        if turned is not None:
            return turned
    return _carefully(x, cos, sin, layout, lane_offset, _named(pairing), inverse, out)


def _carefully(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: str,
    lane_offset: int,
    pairing: str,
    inverse: bool,
    out: Tensor | None,
) -> Tensor:
    """:func:`rotate_by` where arguments are to be refused, converted or differentiated."""
    require_bool(inverse)
    require_tables(cos, sin)
    if isinstance(lane_offset, bool) or not isinstance(lane_offset, (int, torch.SymInt)):
        raise TypeError(f"lane_offset={lane_offset!r} must be an int")
    if cos.dim() < 2 or x.dim() < 2:
        raise ValueError(
            f"x {tuple(x.shape)} and cos {tuple(cos.shape)} need at least two dimensions: "
            "[tokens, head_dim] and [tokens, rotary_dim/2]"
        )
    if not ordinary(x, cos, sin, out) and is_distributed(x, cos, sin, out):
        how = {"layout": layout, "lane_offset": lane_offset, "pairing": pairing, "inverse": inverse}
        return rotate_shards_by(rotate_by, x, cos, sin, out=out, **how)
    if not x.device == cos.device == sin.device:
        raise ValueError(
            f"x is on {x.device}, cos on {cos.device}, sin on {sin.device}; move them to one device"
        )
    wide = compute_dtype(x.dtype)
    _require_once(x.shape[-1], cos.shape[-1], layout, lane_offset)
    lanes = pair_slices(x.shape[-1], cos.shape[-1], layout, lane_offset, pairing)
    if cos.dim() == x.dim():
        _require_broadcast(cos, x)
    else:
        cos, sin = (_as_full(broadcast_tables(t, x), x) for t in (cos, sin))
    if inverse:
        cos, sin = cos.to(wide), sin.to(wide)
        square = cos * cos + sin * sin
        cos, sin = cos / square, -sin / square
    if out is not None:
        check_out(x, out, cos, sin)
    sin = sin.to(cos.dtype)
    turned = fused.one_by(x, cos, sin, number(lanes), out)
    if turned is not None:
        return turned
    if out is None:
        turned = watched_by(x, cos, sin, number(lanes))
        return turn(x, cos, sin, lanes) if turned is None else turned
    return out.copy_(turn(x, cos, sin, lanes))


def _require_once(width: int, columns: int, layout: str, lane_offset: int) -> None:
    """Refuse tables that are too wide by their second copies, where that can be told."""
    if lane_offset < 0 or lane_offset + 2 * columns <= width or layout not in LAYOUTS:
        return
    if columns % 2 == 0 and lane_offset + columns <= width:
        how = "" if layout == "half" else f", layout={layout!r}"
        raise ValueError(
            f"{2 * columns} rotated lanes at lane_offset={lane_offset} do not fit in "
            f"head_dim={width}: cos has {columns} columns, and rotary_dim/2 are wanted. If cos and "
            f"sin hold every angle twice, as transformers has them, {columns // 2} are: use "
            f"ropewalk.halve_tables(cos, sin{how})"
        )


def _as_full(table: Tensor, x: Tensor) -> Tensor:
    """Tables with a head dimension with as many dimensions as x: what the kernel knows them by."""
    return table if table.dim() == 2 else table[(None,) * (x.dim() - table.dim())]


def rotate_qk_by(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    layout: str = "half",
    lane_offset: int = 0,
    pairing: str | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`rotate_by` of q and k, in one pass of the kernel; head counts may differ."""
    require_tensor(q, "q")
    require_tensor(k, "k")
    if isinstance(sin, Tensor) and not torch.compiler.is_compiling():
        lanes = _lanes(q, cos, layout, lane_offset, pairing)
        turned = None if lanes is None else fused.two_by(q, k, cos, sin, lanes)
        if turned is not None:
            return turned
    return (
        rotate_by(q, cos, sin, layout=layout, lane_offset=lane_offset, pairing=pairing),
        rotate_by(k, cos, sin, layout=layout, lane_offset=lane_offset, pairing=pairing),
    )


def rotate_by_(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    layout: str = "half",
    lane_offset: int = 0,
    pairing: str | None = None,
    inverse: bool = False,
) -> Tensor:
    """:func:`rotate_by` in place."""
    require_tensor(x)

    def turned(out: Tensor | None = None) -> Tensor:
        return rotate_by(
            x,
            cos,
            sin,
            layout=layout,
            lane_offset=lane_offset,
            pairing=pairing,
            inverse=inverse,
            out=out,
        )

    watched = any(isinstance(t, Tensor) and fused.needs_derivative(t) for t in (x, cos, sin))
    if not watched:
        require_changeable(x)
        return turned(x)
    result = turned()
    require_changeable(x)
    return x.copy_(result)


def halve_tables(cos: Tensor, sin: Tensor, *, layout: str = "half") -> tuple[Tensor, Tensor]:
    """Tables ``[..., rotary_dim]`` that hold every angle twice, as ``[..., rotary_dim/2]``.

    ``layout="half"`` expects (θ₀…θₙ θ₀…θₙ), ``"interleaved"`` (θ₀ θ₀ θ₁ θ₁ …).

    Raises:
        TypeError: not real floating tensors.
        ValueError: odd width, shapes that differ, or the two copies differ, or cannot be compared.
    """
    require_tables(cos, sin)
    if cos.device != sin.device or cos.is_meta:
        raise ValueError(
            f"cos is on {cos.device}, sin on {sin.device}; their two copies are compared, so give "
            "both with their numbers on one device"
        )
    halves = []
    for name, table in (("cos", cos), ("sin", sin)):
        if table.dim() < 1 or table.shape[-1] % 2:
            raise ValueError(
                f"{name} has shape {tuple(table.shape)}; duplicated tables have an even last "
                "dimension"
            )
        width = table.shape[-1] // 2
        lanes = pair_slices(table.shape[-1], width, layout, 0, "standard")
        first, second = table[..., lanes[0]], table[..., lanes[1]]
        if not torch.equal(first, second):
            worst = (first.double() - second.double()).abs().max().item()
            raise ValueError(
                f"the two copies in {name} differ by up to {worst:.3g}; they are not duplicated "
                f"in layout={layout!r}"
            )
        halves.append(first)
    return halves[0], halves[1]


def require_tables(cos: Tensor, sin: Tensor) -> None:
    """Refuse tables that are not real floating tensors of one shape.

    Raises:
        TypeError, ValueError: they are not.
    """
    for name, table in (("cos", cos), ("sin", sin)):
        if not isinstance(table, Tensor) or not table.dtype.is_floating_point:
            kind = table.dtype if isinstance(table, Tensor) else type(table).__name__
            raise TypeError(
                f"{name} must be a real floating tensor [..., tokens, rotary_dim/2], got {kind}"
            )
        require_dense(name, table)
    if cos.shape != sin.shape:
        raise ValueError(f"cos {tuple(cos.shape)} and sin {tuple(sin.shape)} differ in shape")


def _require_broadcast(table: Tensor, x: Tensor) -> None:
    if any(t != 1 and t != n for t, n in zip(table.shape[:-1], x.shape[:-1], strict=True)):
        raise ValueError(
            f"tables of shape {tuple(table.shape)} do not broadcast over x {tuple(x.shape)}"
        )
