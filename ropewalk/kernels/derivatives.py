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

from ropewalk.kernels.fused import fresh, ops_for
from ropewalk.kernels.phases import phase_tables
from ropewalk.kernels.plain import broadcast_tables, compute_dtype, turn
from ropewalk.spectra.lanes import Turn, slices


def _batched(x: Tensor) -> bool:
    """Whether x is one of a batch of gradients, as ``is_grads_batched=True`` hands them down."""
    return _functorch.is_legacy_batchedtensor(x) or _functorch.is_batchedtensor(x)


# --- by phases ----------------------------------------------------------------------------------


class Rotate(torch.autograd.Function):
    """The kernel on phases, differentiable in x any number of times."""

    @staticmethod
    def forward(
        x: Tensor, positions: Tensor, steps: Tensor, turn: Turn, in_place: bool = False
    ) -> Tensor:
        """x turned, into a fresh tensor or into x itself."""
        ops = ops_for(x)
        assert ops is not None
        result = x if in_place else fresh(ops, x)
        ops.rotate(x, result, positions, 0, steps, *turn)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep positions and steps; x is not needed."""
        x, positions, steps, ctx.turn, in_place = inputs
        if in_place:
            ctx.mark_dirty(x)
        ctx.save_for_backward(positions, steps)
        ctx.save_for_forward(positions, steps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The adjoint rotation of the gradient."""
        positions, steps = ctx.saved_tensors
        return by_phases(gradient, positions, steps, ctx.turn.adjoint()), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The rotation is linear: the tangent turns as x does."""
        positions, steps = ctx.saved_tensors
        return by_phases(tangent, positions, steps, ctx.turn)


def by_phases(x: Tensor, positions: Tensor, steps: Tensor, how: Turn) -> Tensor:
    """x turned by phases, where derivatives of derivatives and batches of gradients come too."""
    if ops_for(x) is not None and not _batched(x):
        return Rotate.apply(x, positions, steps, how, False)
    cosine, sine = phase_tables(positions, steps, how.scale, compute_dtype(x.dtype))
    per_head = steps.dim() == 3
    cosine, sine = (broadcast_tables(t, x, per_head) for t in (cosine, sine))
    lanes = slices(how.lanes, steps.shape[-1])
    return turn(x, cosine, -sine if how.negative else sine, lanes)


# --- by tables ----------------------------------------------------------------------------------


class RotateBy(torch.autograd.Function):
    """The kernel on given tables ``[..., heads or 1, tokens, pairs]``, differentiable in all."""

    @staticmethod
    def forward(x: Tensor, cosine: Tensor, sine: Tensor, lanes: int) -> Tensor:
        """A fresh tensor with x turned."""
        ops = ops_for(x)
        assert ops is not None
        out = fresh(ops, x)
        ops.rotate_by(x, out, cosine, sine, lanes)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the tables, and x where a table wants a gradient."""
        x, cosine, sine, ctx.lanes = inputs
        watched = any(ctx.needs_input_grad[1:3]) or forward_ad._current_level >= 0
        kept = x if watched else None
        ctx.save_for_backward(kept, cosine, sine)
        ctx.save_for_forward(kept, cosine, sine)

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


def by_tables(x: Tensor, cosine: Tensor, sine: Tensor, lanes: int) -> Tensor:
    """x turned by tables as full as x, as :func:`by_phases`."""
    if ops_for(x) is not None and not any(_batched(t) for t in (x, cosine, sine)):
        return RotateBy.apply(x, cosine, sine, lanes)
    return turn(x, cosine, sine, slices(lanes, cosine.shape[-1]))


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
