"""Rotations of DTensors: every rank turns the part it holds, at that part's own positions.

A rotation acts within a head and depends on the token, so batch, heads and tokens may be sharded as
one likes, without communication. A rank's tokens keep their global positions. head_dim must be
whole, and sums that are still to be made (Partial) must be made first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ropewalk.kernels.plain import broadcast_shape, broadcast_tables
from ropewalk.kernels.steps import Steps
from ropewalk.positions.contract import token_positions
from ropewalk.spectra import Spectrum

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

Span = tuple[int, int]
"""First index and number of indices along one dimension."""


def is_distributed(*tensors: Tensor | None) -> bool:
    """Whether any of them is a DTensor; none can be before its module is loaded."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and any(isinstance(t, module.DTensor) for t in tensors)


def rotate_shards(
    rotate: Callable[..., Tensor],
    x: Tensor,
    positions: Tensor | None,
    steps: Steps,
    *,
    inverse: bool,
    offset: int | Tensor | None,
    out: Tensor | None,
) -> Tensor:
    """:func:`ropewalk.rotate` where x, positions, steps or out are DTensors.

    Positions are those of all tokens, plain or a DTensor on the mesh of x.

    Raises:
        TypeError: a sharding that has no rule; the message names the remedy.
    """
    if is_distributed(steps.tensor):
        steps = Steps(steps.tensor.full_tensor(), steps.spectrum)  # pyright: ignore[reportAttributeAccessIssue]
    if not is_distributed(x):
        _refuse_beside_plain(positions=positions, offset=offset, out=out)
        return rotate(x, positions, steps, inverse=inverse, offset=offset, out=out)
    spans = _spans(x)
    spectrum = steps.spectrum
    where = _own_positions(positions, offset, x, spectrum, spans)
    if spectrum.heads is not None and x.dim() > 2:
        steps = _own_heads(steps, spans[-3], x.shape[-3])
    into = None if out is None else _own_out(x, out)
    turned = rotate(_local(x), where, steps, inverse=inverse, out=into)
    return _joined(turned, x, out)


def rotate_shards_by(
    rotate_by: Callable[..., Tensor],
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    out: Tensor | None,
    **how: Any,
) -> Tensor:
    """:func:`ropewalk.rotate_by` where x, the tables or out are DTensors.

    Raises:
        TypeError: a sharding that has no rule; the message names the remedy.
    """
    if not is_distributed(x):
        _refuse_beside_plain(cos=cos, sin=sin, out=out)
    spans = _spans(x)
    tables = [_own_table(name, t, x, spans) for name, t in (("cos", cos), ("sin", sin))]
    into = None if out is None else _own_out(x, out)
    return _joined(rotate_by(_local(x), *tables, out=into, **how), x, out)


def own_weight(weight: Tensor, x: Tensor) -> Tensor:
    """This rank's copy of a weight ``[head_dim]`` that multiplies every row of a sharded x.

    Raises:
        TypeError: its gradient would lack the other ranks' parts, or only it is a DTensor.
    """
    if not is_distributed(x):
        _refuse_beside_plain(weight=weight)
        return weight
    _require_summed("weight", weight, x)
    return _own_part("weight", weight, [x.dim() - 1], x, _spans(x))


def _require_summed(name: str, value: Tensor, x: Any) -> None:
    """Refuse a plain tensor whose gradient would need the other ranks' parts."""
    if not is_distributed(value) and value.requires_grad and any(c is not None for c in _cut(x)):
        raise TypeError(
            f"{name} requires grad and is a plain tensor beside a sharded x, so its gradient would "
            f"lack the other ranks' parts; use distribute_tensor({name}, x.device_mesh)"
        )


def _refuse_beside_plain(**others: object) -> None:
    for name, value in others.items():
        if isinstance(value, Tensor) and is_distributed(value):
            raise TypeError(
                f"{name} is a DTensor and x is not; pass this rank's part of it as a plain tensor "
                f"({name}.to_local()), or all of it ({name}.full_tensor())"
            )


def _spans(x: Any) -> list[Span]:
    """Which indices of every dimension of x this rank holds."""
    from torch.distributed.tensor import Replicate, Shard

    spans = [(0, int(size)) for size in x.shape]
    mesh, coordinate = x.device_mesh, x.device_mesh.get_coordinate()
    if coordinate is None:
        raise TypeError("x is a DTensor on a mesh that this rank is not part of; leave it out here")
    for axis, placement in enumerate(x.placements):
        if type(placement) is Replicate:
            continue
        if type(placement) is not Shard:
            raise TypeError(
                f"x is a DTensor with placements {tuple(x.placements)}; a rotation needs Shard or "
                "Replicate: x.redistribute(placements=[Replicate()]) makes pending sums"
            )
        if placement.dim % x.dim() == x.dim() - 1:
            raise TypeError(
                f"x is a DTensor with placements {tuple(x.placements)}, which cut head_dim, and "
                "pairs of lanes with it; shard heads, tokens or batch: "
                f"x.redistribute(placements=[Shard({max(x.dim() - 3, 0)})])"
            )
        start, size = spans[placement.dim]
        chunk = -(-size // mesh.size(axis))
        first = min(size, chunk * coordinate[axis])
        spans[placement.dim] = (start + first, min(size - first, chunk))
    return spans


def _own_positions(
    positions: Tensor | None,
    offset: int | Tensor | None,
    x: Any,
    spectrum: Spectrum,
    spans: Sequence[Span],
) -> Tensor:
    """The positions of this rank's tokens, ``[tokens]`` or ``[batch, tokens]`` (``, axes``)."""
    if isinstance(offset, Tensor) and is_distributed(offset):
        raise TypeError(
            "offset is a DTensor; pass an int, or the plain tensor offset.full_tensor()"
        )
    where = token_positions(positions, offset, x, spectrum.axes)
    places = list(where.shape if spectrum.axes == 1 else where.shape[:-1])
    broadcast_shape([*places, spectrum.pairs], x, False)
    # The last place is tokens, x's second dimension from the end; those before skip heads.
    dims = [x.dim() - 3 - back if back else x.dim() - 2 for back in range(len(places))][::-1]
    return _own_part("positions", where, dims, x, spans)


def _own_table(name: str, table: Tensor, x: Any, spans: Sequence[Span]) -> Tensor:
    full = table if table.dim() == x.dim() else broadcast_tables(table, x)
    dims = list(range(x.dim() - full.dim(), x.dim() - 1))
    _require_summed(name, table, x)
    own = _own_part(name, full, dims, x, spans)
    return own if own.dim() == x.dim() or own.dim() == 2 else own[(None,) * (x.dim() - own.dim())]


def _own_part(name: str, value: Any, dims: Sequence[int], x: Any, spans: Sequence[Span]) -> Tensor:
    """This rank's part of ``value``, whose first dimensions broadcast over ``dims`` of x."""
    whole = [value.shape[i] == 1 and x.shape[dim] != 1 for i, dim in enumerate(dims)]
    if not is_distributed(value):
        for i, dim in enumerate(dims):
            value = value if whole[i] else value.narrow(i, *spans[dim])
        return value
    from torch.distributed.tensor import Partial, Replicate, Shard

    if value.device_mesh != x.device_mesh:
        raise TypeError(
            f"{name} and x are DTensors on different meshes; use distribute_tensor({name}."
            "full_tensor(), x.device_mesh)"
        )
    target: list[Placement] = []
    gradient: list[Placement] = []
    for cut in _cut(x):
        alike = [i for i, dim in enumerate(dims) if dim == cut and not whole[i]]
        target.append(Shard(alike[0]) if alike else Replicate())
        gradient.append(Partial() if cut is not None and not alike else target[-1])
    return _local(value.redistribute(placements=target), gradient)


def _cut(x: Any) -> list[int | None]:
    """For every axis of the mesh, the dimension of x that it shards."""
    return [p.dim % x.dim() if p.is_shard() else None for p in x.placements]


def _own_heads(steps: Steps, span: Span, heads: int) -> Steps:
    """Steps per head for the heads of this rank, each query head with those of its KV head."""
    own = steps.spectrum.heads or 1
    if heads % own:
        raise ValueError(f"x has {heads} heads, not a multiple of the spectrum's heads={own}")
    rows = tuple(h // (heads // own) for h in range(span[0], sum(span))) or (0,)
    return Steps(steps.tensor[list(rows)], _of_heads(steps.spectrum, rows))


@lru_cache(maxsize=256)
def _of_heads(spectrum: Spectrum, rows: tuple[int, ...]) -> Spectrum:
    return spectrum.replace(freqs=tuple(spectrum.matrices[row] for row in rows))


def _local(x: Any, gradient: Sequence[Placement] | None = None) -> Tensor:
    own = x.to_local(grad_placements=gradient)
    return own.wait() if hasattr(own, "wait") else own


def _own_out(x: Any, out: Any) -> Tensor:
    if (
        not is_distributed(out)
        or out.device_mesh != x.device_mesh
        or tuple(out.placements) != tuple(x.placements)
        or out.shape != x.shape
    ):
        raise TypeError(
            f"x is a DTensor {tuple(x.shape)} with placements {tuple(x.placements)}; out must be a "
            "DTensor of the same shape, mesh and placements, such as torch.empty_like(x)"
        )
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        raise ValueError("out= has no gradient; call without out=, or under torch.no_grad()")
    return _local(out)


def _joined(turned: Tensor, x: Any, out: Tensor | None) -> Tensor:
    """The parts as one DTensor, sharded as x is; or out, whose part has been written."""
    if out is not None:
        torch.autograd.graph.increment_version(out)
        return out
    from torch.distributed.tensor import DTensor

    strides, size = [1] * x.dim(), 1
    for dim in sorted(range(x.dim()), key=lambda d: (turned.stride(d), -d)):
        strides[dim], size = size, size * max(int(x.shape[dim]), 1)
    return DTensor.from_local(
        turned,
        x.device_mesh,
        x.placements,
        run_check=False,
        shape=x.shape,
        stride=tuple(strides),
    )


__all__ = ["is_distributed", "rotate_shards", "rotate_shards_by"]

if TYPE_CHECKING:
    _: type[DTensor]
