"""Derivatives of rotations by a compiled kernel.

The adjoint of a rotation is the same kernel with the opposite sign, so backward, double backward
and jvp in x need positions and steps and nothing else. Tables that want gradients are given them
in plain arithmetic, and only then is x kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.autograd import forward_ad

from ropewalk.kernels.fused import MOST_DIMS, fresh, needs_derivative, ops_for, rotation
from ropewalk.kernels.phases import phase_tables
from ropewalk.kernels.plain import broadcast_tables, compute_dtype
from ropewalk.kernels.plain import turn as plainly_turned
from ropewalk.spectra.lanes import Turn, slices


def _batched(x: Tensor) -> bool:
    """Whether x is one of a batch of gradients, as ``is_grads_batched=True`` hands them down."""
    return _functorch.is_legacy_batchedtensor(x) or _functorch.is_batchedtensor(x)


def kept(tensor: Tensor) -> Tensor:
    """``tensor`` as autograd may keep it."""
    return tensor.clone() if tensor.is_inference() else tensor


# --- by phases ----------------------------------------------------------------------------------


class Rotate(torch.autograd.Function):
    """The kernel on phases, differentiable in x any number of times."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        x: Tensor,
        positions: Tensor | None,
        offset: int,
        steps: Tensor,
        turn: Turn,
        in_place: bool,
    ) -> Tensor:
        """x turned, into a fresh tensor or into x itself; x is not kept."""
        ctx.offset, ctx.turn = offset, turn
        ctx.save_for_backward(positions, steps)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(positions, steps)
        if in_place:
            ctx.mark_dirty(x)
        return _turned(x, positions, offset, steps, turn, x if in_place else None)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The adjoint rotation of the gradient."""
        positions, steps = ctx.saved_tensors
        for_x = by_phases(gradient, positions, ctx.offset, steps, ctx.turn.adjoint())
        return for_x, None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The rotation is linear: the tangent turns as x does."""
        positions, steps = ctx.saved_tensors
        return by_phases(tangent, positions, ctx.offset, steps, ctx.turn)


def _turned(
    x: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    turn: Turn,
    out: Tensor | None = None,
) -> Tensor:
    ops = ops_for(x)
    assert ops is not None
    result = fresh(ops, x) if out is None else out
    ops.rotate(x, result, positions, offset, steps, *turn)
    return result


def by_phases(
    x: Tensor, positions: Tensor | None, offset: int, steps: Tensor, turn: Turn
) -> Tensor:
    """x turned by phases, where derivatives of derivatives and batches of gradients come too."""
    if ops_for(x) is not None and not _batched(x):
        if needs_derivative(x):
            return Rotate.apply(x, positions, offset, steps, turn, False)
        return _turned(x, positions, offset, steps, turn)
    if positions is None:
        positions = offset + torch.arange(x.shape[-2], device=steps.device)
    cosine, sine = phase_tables(positions, steps, turn.scale, compute_dtype(x.dtype))
    per_head = steps.dim() == 3
    cosine, sine = (broadcast_tables(t, x, per_head) for t in (cosine, sine))
    lanes = slices(turn.lanes, steps.shape[-1])
    return plainly_turned(x, cosine, -sine if turn.negative else sine, lanes)


def watched(
    x: Tensor, positions: Any, spectrum: Any, inverse: Any, offset: Any, in_place: bool = False
) -> Tensor | None:
    """x turned by the kernel with derivatives, or None if its arguments are not as it takes them.

    With ``in_place`` whether x may be changed has been asked before.
    """
    if ops_for(x) is None or x.dim() > MOST_DIMS or not needs_derivative(x):
        return None
    how = rotation(x, positions, offset, spectrum, inverse)
    if how is None:
        return None
    positions, start, steps, scale, lanes = how
    positions = None if positions is None else kept(positions)
    steps = kept(steps).contiguous()
    try:
        return Rotate.apply(x, positions, start, steps, Turn(scale, lanes), in_place)
    except RuntimeError:
        return None


# --- by tables ----------------------------------------------------------------------------------


class RotateBy(torch.autograd.Function):
    """The kernel on given tables ``[..., heads or 1, tokens, pairs]``, differentiable in all.

    Tables that want no gradient may have fewer dimensions, as ``rotate_by`` takes them.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, x: Tensor, cosine: Tensor, sine: Tensor, lanes: int
    ) -> Tensor:
        """A fresh tensor with x turned; x is kept where a table wants a gradient."""
        ctx.lanes = lanes
        forward = forward_ad._current_level >= 0
        kept = x if forward or any(ctx.needs_input_grad[1:3]) else None
        ctx.save_for_backward(kept, cosine, sine)
        if forward:
            ctx.save_for_forward(kept, cosine, sine)
        return _turned_by(x, cosine, sine, lanes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The transpose for x; for a table, what its lanes did, summed over where it was used."""
        x, cosine, sine = ctx.saved_tensors
        for_x = for_cosine = for_sine = None
        if ctx.needs_input_grad[0]:
            for_x = by_tables(gradient, cosine, -sine, ctx.lanes)
        if x is not None:
            for_cosine, for_sine = _table_gradients(x, gradient, cosine, ctx.lanes)
        return for_x, for_cosine, for_sine, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, cosine_tangent: Tensor | None,  # pyright: ignore[reportIncompatibleMethodOverride]
            sine_tangent: Tensor | None, _: Any) -> Tensor:  # fmt: skip
        """The product rule: the rotation is linear in x and in the tables."""
        x, cosine, sine = ctx.saved_tensors
        total = None if tangent is None else by_tables(tangent, cosine, sine, ctx.lanes)
        if cosine_tangent is not None or sine_tangent is not None:
            c = torch.zeros_like(cosine) if cosine_tangent is None else cosine_tangent
            s = torch.zeros_like(sine) if sine_tangent is None else sine_tangent
            moved = _only_pairs(by_tables(x, c, s, ctx.lanes), ctx.lanes, cosine.shape[-1])
            total = moved if total is None else total + moved
        assert total is not None
        return total


def _turned_by(x: Tensor, cosine: Tensor, sine: Tensor, lanes: int) -> Tensor:
    ops = ops_for(x)
    assert ops is not None
    out = fresh(ops, x)
    ops.rotate_by(x, out, cosine, sine, lanes)
    return out


def by_tables(x: Tensor, cosine: Tensor, sine: Tensor, lanes: int) -> Tensor:
    """x turned by tables, as :func:`by_phases`."""
    if ops_for(x) is not None and not any(_batched(t) for t in (x, cosine, sine)):
        if any(needs_derivative(t) for t in (x, cosine, sine)):
            return RotateBy.apply(x, cosine, sine, lanes)
        return _turned_by(x, cosine, sine, lanes)
    if cosine.dim() < x.dim():
        cosine, sine = broadcast_tables(cosine, x), broadcast_tables(sine, x)
    return plainly_turned(x, cosine, sine, slices(lanes, cosine.shape[-1]))


def watched_by(x: Tensor, cosine: Tensor, sine: Tensor, lanes: int) -> Tensor | None:
    """:func:`watched` by tables."""
    tables = (cosine, sine)
    if any(ops_for(t) is None for t in (x, *tables)) or x.dim() > MOST_DIMS:
        return None
    of_tables = needs_derivative(cosine) or needs_derivative(sine)
    if not (of_tables or needs_derivative(x)) or (of_tables and cosine.dim() not in (2, x.dim())):
        return None
    try:
        return RotateBy.apply(x, kept(cosine), kept(sine), lanes)
    except RuntimeError:
        return None


def _only_pairs(x: Tensor, lanes: int, pairs: int) -> Tensor:
    """x with the lanes that pass set to zero."""
    kept = torch.zeros(x.shape[-1], dtype=torch.bool, device=x.device)
    for part in slices(lanes, pairs):
        kept[part] = True
    return torch.where(kept, x, 0)


def _table_gradients(
    x: Tensor, gradient: Tensor, table: Tensor, lanes: int
) -> tuple[Tensor, Tensor]:
    """Gradients of cos and sin in the shape and dtype of the table."""
    wide = compute_dtype(x.dtype)
    first, second = slices(lanes, table.shape[-1])
    a, b = x[..., first].to(wide), x[..., second].to(wide)
    u, v = gradient[..., first].to(wide), gradient[..., second].to(wide)
    return (
        (u * a + v * b).sum_to_size(table.shape).to(table.dtype),
        (v * a - u * b).sum_to_size(table.shape).to(table.dtype),
    )
