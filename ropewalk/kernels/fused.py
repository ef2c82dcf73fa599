"""Rotation by the kernel of the device: which tensors it takes, and its derivatives.

The kernel reads each value once and writes it once. Its adjoint is the same kernel with the
opposite sign, so backward, double backward and jvp need positions and steps and nothing else.
Compilers never come here: they trace the plain form in :mod:`ropewalk.kernels.plain`, whose
tables come from the same C++ code, so both agree bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.autograd import forward_ad

from ropewalk.kernels.devices import operators
from ropewalk.kernels.phases import phase_tables
from ropewalk.kernels.plain import broadcast_tables, compute_dtype, turn

_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.float64})
_MOST_DIMS = 8
_HUGE = 4 << 20
"""Bytes from which a fresh result is worth huge pages."""


class Turn(NamedTuple):
    """How the lanes turn: cos and sin are multiplied by ``scale``, the angle's sign may flip."""

    scale: float
    negate: bool
    first: int
    second: int
    lane_step: int

    @staticmethod
    def of(lanes: tuple[slice, slice], factor: float, inverse: bool) -> Turn:
        """The forward or the undoing turn of ``lanes``."""
        step = lanes[0].step or 1
        scale = 1 / factor if inverse else factor
        return Turn(scale, inverse, lanes[0].start, lanes[1].start, step)

    def adjoint(self) -> Turn:
        """The transpose: the opposite angle, the same scale."""
        return self._replace(negate=not self.negate)


def ops_for(x: Tensor) -> Any:
    """Operators of the kernel on x's device, or None: no kernel, or it cannot take such an x."""
    if (
        type(x) not in (Tensor, torch.nn.Parameter)
        or x.dtype not in _DTYPES
        or x.dim() > _MOST_DIMS
        or torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python)
        or transformed()
        or x.is_conj()
        or x.is_neg()
    ):
        return None
    return operators(x.device.type)


def transformed() -> bool:
    """Whether a ``torch.func`` transform (vmap, grad, jvp …) is at work."""
    return _functorch.peek_interpreter_stack() is not None


def needs_derivative(x: Tensor) -> bool:
    """Whether autograd watches x, in reverse or forward mode."""
    level = forward_ad._current_level
    return (torch.is_grad_enabled() and x.requires_grad) or level >= 0


def fits(x: Tensor, out: Tensor) -> bool:
    """Whether ``out`` may be written while x is read: x itself, or memory apart from it."""
    if type(out) not in (Tensor, torch.nn.Parameter):
        return False
    if out.untyped_storage().data_ptr() != x.untyped_storage().data_ptr():
        return True
    return out.data_ptr() == x.data_ptr() and out.stride() == x.stride()


def fresh(ops: Any, x: Tensor) -> Tensor:
    """An empty result for x; a large one asks for huge pages."""
    out = torch.empty_like(x)
    if out.numel() * out.element_size() >= _HUGE:
        ops.advise.default(out)
    return out


class Rotate(torch.autograd.Function):
    """The kernel on phases, differentiable in x any number of times."""

    @staticmethod
    def forward(x: Tensor, positions: Tensor, steps: Tensor, turn: Turn) -> Tensor:
        """A fresh tensor with x turned."""
        ops = operators(x.device.type)
        out = fresh(ops, x)
        ops.rotate_out.default(x, out, positions, steps, *turn)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep positions and steps; x is not needed."""
        _, positions, steps, ctx.turn = inputs
        ctx.save_for_backward(positions, steps)
        ctx.save_for_forward(positions, steps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The adjoint rotation of the gradient."""
        positions, steps = ctx.saved_tensors
        return by_phases(gradient, positions, steps, ctx.turn.adjoint()), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The rotation is linear: the tangent turns as x does."""
        positions, steps = ctx.saved_tensors
        return by_phases(tangent, positions, steps, ctx.turn)


def by_phases(x: Tensor, positions: Tensor, steps: Tensor, how: Turn) -> Tensor:
    """x turned by phases, where derivatives of derivatives and batches of gradients come too."""
    if ops_for(x) is not None and not _batched(x):
        return Rotate.apply(x, positions, steps, how)
    cosine, sine = phase_tables(positions, steps, how.scale, compute_dtype(x.dtype))
    per_head = steps.dim() == 3
    cosine, sine = (broadcast_tables(t, x, per_head) for t in (cosine, sine))
    return turn(x, cosine, -sine if how.negate else sine, _lanes(how, steps.shape[-1]))


class RotateBy(torch.autograd.Function):
    """The kernel on given tables, differentiable in x any number of times."""

    @staticmethod
    def forward(x: Tensor, cosine: Tensor, sine: Tensor, lanes: tuple[int, int, int]) -> Tensor:
        """A fresh tensor with x turned."""
        ops = operators(x.device.type)
        out = fresh(ops, x)
        ops.rotate_by_out.default(x, out, cosine, sine, *lanes)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the tables."""
        _, cosine, sine, ctx.lanes = inputs
        ctx.save_for_backward(cosine, sine)
        ctx.save_for_forward(cosine, sine)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The transpose: the opposite sine."""
        cosine, sine = ctx.saved_tensors
        return by_tables(gradient, cosine, -sine, ctx.lanes), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The rotation is linear: the tangent turns as x does."""
        cosine, sine = ctx.saved_tensors
        return by_tables(tangent, cosine, sine, ctx.lanes)


def by_tables(x: Tensor, cosine: Tensor, sine: Tensor, lanes: tuple[int, int, int]) -> Tensor:
    """x turned by tables ``[..., tokens, pairs]``, as :func:`by_phases`."""
    if ops_for(x) is not None and not _batched(x):
        return RotateBy.apply(x, cosine, sine, lanes)
    how = Turn(1.0, False, *lanes)
    cosine, sine = broadcast_tables(cosine, x), broadcast_tables(sine, x)
    return turn(x, cosine, sine, _lanes(how, cosine.shape[-1]))


def _batched(x: Tensor) -> bool:
    """Whether x is one of a batch of gradients, as ``is_grads_batched=True`` hands them down."""
    return _functorch.is_legacy_batchedtensor(x) or _functorch.is_batchedtensor(x)


def _lanes(how: Turn, pairs: int) -> tuple[slice, slice]:
    span = how.lane_step * pairs
    step = how.lane_step if how.lane_step > 1 else None
    end = how.first + span
    return slice(how.first, end, step), slice(how.second, end if step else how.second + span, step)
