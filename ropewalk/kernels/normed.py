r"""Rows of q and k over their root mean square, weighted and turned, in one pass over memory.

Qwen3, Gemma 3 and others normalise each head before they rotate it. Apart these are two passes over
memory at least, and ten where they are written in tensor operations; the kernel reads each value
once and writes it once. The plain form serves where there is no kernel, and transforms, compilers
and forward-mode derivatives.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ropewalk.kernels import fused
from ropewalk.kernels.arguments import check_out, require_changeable, require_tensor
from ropewalk.kernels.derivatives import by_phases, kept
from ropewalk.kernels.devices import kernel_for
from ropewalk.kernels.kinds import ordinary
from ropewalk.kernels.norm_arguments import require_eps, require_weight
from ropewalk.kernels.phases import tables
from ropewalk.kernels.plain import broadcast_tables, compute_dtype, turn
from ropewalk.kernels.rotate import checked, fitting, require_both_changeable
from ropewalk.kernels.sharded import is_distributed, own_weight, rotate_shards
from ropewalk.kernels.steps import Steps
from ropewalk.spectra import Spectrum
from ropewalk.spectra.lanes import Turn


def norm_rotate(
    x: Tensor,
    weight: Tensor | None,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    *,
    eps: float = 1e-6,
    offset: int | Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    r"""R_p(weight ∘ x / √(mean(x²) + eps)): RMS norm over head_dim, then :func:`rotate`.

    The mean is over all lanes of a row, those that do not turn included. Arithmetic is at least
    float32, and the result is rounded once to the dtype of x. transformers rounds to that dtype
    after the norm, after the weight, and thrice as it rotates: in bfloat16 its results differ from
    these by up to 2⁻⁷ of the row's largest value, and are that much further from the exact ones.

    Squares are summed in the dtype of the arithmetic, as ``torch.nn.functional.rms_norm`` does it
    there: a row whose sum overflows float32 gives 0, so does one with an infinity beside the NaN of
    its own pair, a NaN makes its row NaN, and a row of zeros gives 0, or NaN if eps is 0.

    Args:
        x: ``[..., heads, tokens, head_dim]``, real floating, any strides.
        weight: ``[head_dim]`` of any real floating dtype, or None for ones. Models that multiply
            by 1 + w, such as Gemma, give ``1 + w``.
        positions, spectrum, offset: as in :func:`rotate`.
        eps: added to the mean square, at least 0.
        out: written and returned, no gradient; x itself, or memory that x does not reach into.

    Returns:
        A tensor of the shape and dtype of x, differentiable in x and weight any number of times.

    Raises:
        TypeError, ValueError: shapes or dtypes do not fit; the message names both sides.

    Source: RMSNorm (Zhang & Sennrich, 2019), equation 4; RoFormer (Su et al., 2021), equation 34.
    """
    outs = None if out is None else (out,)
    done = _at_once((x,), (weight,), positions, spectrum, eps, offset, outs)
    if done is not None:
        return done[0]
    require_tensor(x)
    require_eps(eps)
    require_weight(weight, x)
    held = spectrum.tensor if isinstance(spectrum, Steps) else None
    tensors = (x, weight, positions, held, out)
    if not ordinary(*tensors) and is_distributed(*tensors):
        return _shards(x, weight, positions, spectrum, eps, offset, out)
    steps, where = checked(x, positions, spectrum, False, offset)
    compute_dtype(x.dtype)
    if out is not None:
        check_out(x, out, *(() if weight is None else (weight,)))
    done = _at_once((x,), (weight,), where, steps, float(eps), None, outs)
    if done is not None:
        return done[0]
    if out is not None:
        return out.copy_(_plainly(x, weight, where, steps, eps))
    turned = _watched(x, weight, where, steps, float(eps))
    return _plainly(x, weight, where, steps, eps) if turned is None else turned


def norm_rotate_(
    x: Tensor,
    weight: Tensor | None,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    *,
    eps: float = 1e-6,
    offset: int | Tensor | None = None,
) -> Tensor:
    """:func:`norm_rotate` in place; gradients stay right, and cost a copy of x."""
    if _at_once((x,), (weight,), positions, spectrum, eps, offset, (x,)) is not None:
        return x
    require_tensor(x)
    require_changeable(x)
    wanted = any(isinstance(t, Tensor) and fused.needs_derivative(t) for t in (x, weight))
    if ordinary(x) and not wanted:
        return norm_rotate(x, weight, positions, spectrum, eps=eps, offset=offset, out=x)
    return x.copy_(norm_rotate(x.clone(), weight, positions, spectrum, eps=eps, offset=offset))


def norm_rotate_qk(
    q: Tensor,
    k: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    *,
    eps: float = 1e-6,
    offset: int | Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`norm_rotate` of q and k at the same positions; head counts may differ.

    The kernel takes both in one pass, so sin and cos are computed once.

    Raises:
        ValueError: q and k differ in tokens.
    """
    weights = (q_weight, k_weight)
    done = _at_once((q, k), weights, positions, spectrum, eps, offset, None)
    if done is not None:
        return done[0], done[1]
    steps = fitting(q, k, spectrum)
    return (
        norm_rotate(q, q_weight, positions, steps, eps=eps, offset=offset),
        norm_rotate(k, k_weight, positions, steps, eps=eps, offset=offset),
    )


def norm_rotate_qk_(
    q: Tensor,
    k: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    *,
    eps: float = 1e-6,
    offset: int | Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`norm_rotate_qk` in place."""
    weights = (q_weight, k_weight)
    if _at_once((q, k), weights, positions, spectrum, eps, offset, (q, k)) is not None:
        return q, k
    steps = fitting(q, k, spectrum)
    require_eps(eps)
    require_both_changeable(q, k, positions, steps, False, offset)
    for x, weight in ((q, q_weight), (k, k_weight)):
        require_weight(weight, x)
    return (
        norm_rotate_(q, q_weight, positions, steps, eps=eps, offset=offset),
        norm_rotate_(k, k_weight, positions, steps, eps=eps, offset=offset),
    )


# --- by the kernel ------------------------------------------------------------------------------


def _at_once(
    xs: tuple[Tensor, ...],
    weights: tuple[Tensor | None, ...],
    positions: Tensor | None,
    spectrum: Any,
    eps: object,
    offset: object,
    outs: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...] | None:
    """x, or q and k, by the kernel; None, and nothing written, where it does not take all as is."""
    if type(eps) is not float or not 0.0 <= eps < math.inf:
        return None
    if xs[0] is None or xs[-1] is None or not fused.eager() or fused.forward_mode():
        return None
    watched = False
    for given in (*xs, *weights) if outs is None else (*xs, *weights, *outs):
        if given is None:
            continue
        if type(given) is not Tensor and type(given) is not Parameter:
            return None
        watched = watched or given.requires_grad
    x = xs[0]
    kernel = kernel_for(x)
    if kernel.normed is None or (watched and torch.is_grad_enabled()):
        return None
    try:
        how = fused.rotation(x, positions, offset, spectrum, False)
        if how is None:
            return None
        results = tuple([fused.fresh(kernel.ops, x) for x in xs]) if outs is None else outs
        k, k_out, k_weight = (None,) * 3 if len(xs) == 1 else (xs[1], results[1], weights[1])
        kernel.normed(x, k, results[0], k_out, weights[0], k_weight, eps, *how)
    except RuntimeError:
        return None
    if outs is not None:
        fused.written(*outs)
    return results


class NormRotate(torch.autograd.Function):
    """The kernel, differentiable in x and weight: backward turns back and is tensor operations."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        positions: Tensor | None,
        offset: int,
        steps: Tensor,
        turn: Turn,
        eps: float,
    ) -> Tensor:
        """A fresh tensor; x and weight are kept, and nothing of the size of x beside."""
        ctx.offset, ctx.turn, ctx.eps = offset, turn, eps
        ctx.save_for_backward(x, weight, positions, steps)
        kernel = kernel_for(x)
        assert kernel.normed is not None
        out = fused.fresh(kernel.ops, x)
        kernel.normed(x, None, out, None, weight, None, eps, positions, offset, steps, *turn)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """With h the gradient turned back: Σ h∘x̂ for weight, (u − x̂ mean(u∘x̂)) / rms for x.

        x̂ is x over its root mean square, u is h∘weight. Each is rounded once, at its end.
        """
        x, weight, positions, steps = ctx.saved_tensors
        wide = compute_dtype(x.dtype)
        h = by_phases(gradient.to(wide), positions, ctx.offset, steps, ctx.turn.adjoint())
        over = _over_rms(x.to(wide), ctx.eps)
        row = x.to(wide) * over
        for_x = for_weight = None
        if weight is not None and ctx.needs_input_grad[1]:
            for_weight = (h * row).sum(list(range(-x.dim(), -1))).to(weight.dtype)
        if ctx.needs_input_grad[0]:
            u = h if weight is None else h * weight.to(wide)
            for_x = (over * (u - row * (u * row).mean(-1, keepdim=True))).to(x.dtype)
        return for_x, for_weight, None, None, None, None, None


def _watched(
    x: Tensor, weight: Tensor | None, where: Tensor, steps: Steps, eps: float
) -> Tensor | None:
    """x by the kernel with derivatives, or None where it does not take all as it is."""
    given = (x,) if weight is None else (x, weight)
    if any(fused.ops_for(t) is None for t in given) or fused.forward_mode():
        return None
    how = fused.rotation(x, where, None, steps, False)
    if how is None or kernel_for(x).normed is None:
        return None
    positions, start, frequencies, scale, lanes = how
    assert positions is not None
    saved = kept(positions), start, kept(frequencies).contiguous(), Turn(scale, lanes)
    try:
        return NormRotate.apply(x, weight, *saved, eps)
    except RuntimeError:
        return None


# --- in PyTorch's operations --------------------------------------------------------------------


def _over_rms(wide: Tensor, eps: float) -> Tensor:
    """1 over the root mean square of each row."""
    return torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)


def _plainly(x: Tensor, weight: Tensor | None, where: Tensor, steps: Steps, eps: float) -> Tensor:
    """The definition, which everything can differentiate and trace."""
    wide = compute_dtype(x.dtype)
    rows = x.to(wide)
    rows = rows * _over_rms(rows, eps)
    if weight is not None:
        rows = rows * weight.to(wide)
    per_head = steps.spectrum.heads is not None
    cosine, sine = (broadcast_tables(t, x, per_head) for t in tables(where, steps, wide))
    return turn(rows, cosine, sine, steps.spectrum.lanes).to(x.dtype)


def _shards(
    x: Tensor,
    weight: Tensor | None,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    eps: float,
    offset: int | Tensor | None,
    out: Tensor | None,
) -> Tensor:
    """Where x, weight, positions, steps or out are DTensors: every rank its own rows."""
    own = None if weight is None else own_weight(weight, x)

    def part(
        x: Tensor,
        positions: Tensor | None,
        steps: Steps,
        *,
        inverse: bool,
        offset: int | Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        assert not inverse
        return norm_rotate(x, own, positions, steps, eps=eps, offset=offset, out=out)

    steps = spectrum.on(x.device) if isinstance(spectrum, Spectrum) else spectrum
    return rotate_shards(part, x, positions, steps, inverse=False, offset=offset, out=out)
