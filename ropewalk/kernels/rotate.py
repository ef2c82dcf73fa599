r"""Rotation of pairs of lanes: the one rotary operation, checked and sent to its form.

A positive angle turns (x₀, x₁) to (x₀·cos − x₁·sin, x₀·sin + x₁·cos). ``inverse=True`` turns by the
negative angle and divides by attention_factor, so it undoes the rotation. Arithmetic is at least
float32, the result is rounded once to the dtype of x. The C++ kernel
(:mod:`ropewalk.kernels.fused`) and plain tensor arithmetic (:mod:`ropewalk.kernels.plain`) share
the process's sin and cos and give the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.kernels import fused
from ropewalk.kernels.kinds import ordinary, require_dense
from ropewalk.kernels.lanes import pair_slices
from ropewalk.kernels.phases import tables
from ropewalk.kernels.plain import broadcast_shape, broadcast_tables, compute_dtype, turn
from ropewalk.kernels.sharded import is_distributed, rotate_shards, rotate_shards_by
from ropewalk.kernels.steps import Steps
from ropewalk.positions.contract import token_positions
from ropewalk.spectra import Spectrum


def _require_tensor(x: object) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(
            f"x must be a tensor [..., heads, tokens, head_dim], got {type(x).__name__}"
        )
    require_dense("x", x)


def _require_bool(inverse: object) -> None:
    if not isinstance(inverse, bool):
        raise TypeError(f"inverse={inverse!r} must be True or False")


def _as_steps(spectrum: Spectrum | Steps, x: Tensor) -> Steps:
    _require_tensor(x)
    if isinstance(spectrum, Spectrum):
        return spectrum.on(x.device)
    if isinstance(spectrum, Steps):
        return spectrum
    raise TypeError(
        f"spectrum must be a Spectrum or Steps, got {type(spectrum).__name__}; "
        "build one with ropewalk.spectra.geometric(head_dim, base)"
    )


def _check_out(x: Tensor, out: Tensor) -> None:
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        raise ValueError("out= has no gradient; call without out=, or under torch.no_grad()")
    if out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
        raise ValueError(
            f"out has shape {tuple(out.shape)}, {out.dtype} on {out.device}; "
            f"x needs {tuple(x.shape)}, {x.dtype} on {x.device}"
        )
    _require_own_memory("out", out)


def _require_own_memory(name: str, x: Tensor) -> None:
    if any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape, strict=True)):
        raise ValueError(
            f"{name} of shape {tuple(x.shape)} is expanded: several places share one memory, so it "
            "cannot be written; use .contiguous()"
        )


def _in_place(x: Tensor, result: Tensor) -> Tensor:
    """result written into x, as PyTorch's own in-place operations do."""
    if torch.is_grad_enabled() and x.requires_grad and x.is_leaf:
        raise ValueError(
            "x is a leaf that requires grad, which cannot be changed in place; use the form "
            "without the underscore, or torch.no_grad()"
        )
    _require_own_memory("x", x)
    return x.copy_(result)


def rotate(
    x: Tensor,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    *,
    inverse: bool = False,
    offset: int | Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """x with each pair of lanes turned by the angle of its token's position.

    Args:
        x: ``[..., heads, tokens, head_dim]``, real floating, any strides.
        positions: any int64 values, ``[tokens]`` or ``[batch, tokens]``, with a last dimension of
            axes if the spectrum has several; ``None`` means 0 … T−1.
        spectrum: a :class:`Spectrum`, or its :class:`Steps` on the device of x.
        inverse: turn back, and divide by attention_factor.
        offset: with ``positions=None``, the first position: an int, or ``[batch]``.
        out: written and returned, no gradient; may be a view such as a slice of a KV cache.

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError, ValueError: shapes or dtypes do not fit; the message names both sides.

    Source: RoFormer (Su et al., 2021), equation 34.
    """
    steps = _as_steps(spectrum, x)
    _require_bool(inverse)
    tensors = (x, positions, steps.tensor, out)
    if not ordinary(*tensors) and is_distributed(*tensors):
        return rotate_shards(rotate, x, positions, steps, inverse=inverse, offset=offset, out=out)
    lanes = spectrum_lanes(steps.spectrum, x)
    where = token_positions(positions, offset, x, steps.spectrum.axes)
    if where.device != x.device:
        raise ValueError(f"x is on {x.device}, positions are on {where.device}; move one of them")
    if out is not None:
        _check_out(x, out)
    return _turn_by_phases(x, where, steps, lanes, inverse, out)


def _turn_by_phases(
    x: Tensor,
    where: Tensor,
    steps: Steps,
    lanes: tuple[slice, slice],
    inverse: bool,
    out: Tensor | None,
) -> Tensor:
    """x turned, by the C++ kernel where it can, into ``out`` where one is given."""
    spectrum = steps.spectrum
    ops = fused.ops_for(x)
    if (
        ops is None
        or not ordinary(where, steps.tensor)
        or where.device != steps.tensor.device
        or (out is not None and (fused.needs_derivative(x) or not fused.fits(x, out)))
    ):
        cosine, sine = tables(where, steps, compute_dtype(x.dtype), inverse=inverse)
        per_head = spectrum.heads is not None
        cosine, sine = (broadcast_tables(t, x, per_head) for t in (cosine, sine))
        turned = turn(x, cosine, sine, lanes)
        return turned if out is None else out.copy_(turned)
    _check_places(where, spectrum, x)
    how = fused.Turn.of(lanes, spectrum.attention_factor, inverse)
    if out is None and fused.needs_derivative(x):
        saved = tuple(t.clone() if t.is_inference() else t for t in (where, steps.tensor))
        return fused.Rotate.apply(x, *saved, how)
    result = fused.fresh(ops, x) if out is None else out
    ops.rotate_out.default(x, result, where, steps.tensor, *how)
    if out is not None and not out.is_inference():
        torch.autograd.graph.increment_version(out)
    return result


def _check_places(where: Tensor, spectrum: Spectrum, x: Tensor) -> None:
    """Refuse positions or heads that do not fit x, in the words of the plain form."""
    shape = list(where.shape if spectrum.axes == 1 else where.shape[:-1])
    if spectrum.heads is not None:
        shape.insert(len(shape) - 1, spectrum.heads)
    broadcast_shape([*shape, spectrum.pairs], x, spectrum.heads is not None)


def spectrum_lanes(spectrum: Spectrum, x: Tensor) -> tuple[slice, slice]:
    """The lanes of x that ``spectrum`` turns.

    Raises:
        ValueError: x has another head_dim, or fewer than two dimensions.
    """
    if x.dim() < 2 or x.shape[-1] != spectrum.head_dim:
        raise ValueError(
            f"x has shape {tuple(x.shape)}; this spectrum turns [..., heads, tokens, "
            f"{spectrum.head_dim}]"
        )
    return pair_slices(
        spectrum.head_dim, spectrum.pairs, spectrum.layout, spectrum.lane_offset, spectrum.pairing
    )


def rotate_(
    x: Tensor,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    *,
    inverse: bool = False,
    offset: int | Tensor | None = None,
) -> Tensor:
    """:func:`rotate` in place; x is marked as modified and gradients stay right."""
    if isinstance(x, Tensor) and not fused.needs_derivative(x):
        return rotate(x, positions, spectrum, inverse=inverse, offset=offset, out=x)
    return _in_place(x, rotate(x, positions, spectrum, inverse=inverse, offset=offset))


def rotate_qk(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    *,
    inverse: bool = False,
    offset: int | Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`rotate` of q and k at the same positions; head counts may differ.

    The C++ kernel takes both in one pass, so sin and cos are computed once.
    """
    steps = _as_steps(spectrum, q)
    together = _both(q, k, positions, steps, inverse, offset)
    if together is not None:
        return together
    return (
        rotate(q, positions, steps, inverse=inverse, offset=offset),
        rotate(k, positions, steps, inverse=inverse, offset=offset),
    )


def _both(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    steps: Steps,
    inverse: bool,
    offset: int | Tensor | None,
) -> tuple[Tensor, Tensor] | None:
    """q and k by one call of the kernel, or None where each has to go its own way."""
    ops = fused.ops_for(q)
    if ops is None or not isinstance(k, Tensor) or fused.ops_for(k) is None:
        return None
    if not ordinary(positions, steps.tensor):
        return None
    alike = q.dtype == k.dtype and q.dim() == k.dim() and q.shape[:-3] == k.shape[:-3]
    if not alike or q.shape[-2:] != k.shape[-2:] or steps.tensor.device != q.device:
        return None
    if fused.needs_derivative(q) or fused.needs_derivative(k):
        return None
    _require_bool(inverse)
    lanes = spectrum_lanes(steps.spectrum, q)
    where = token_positions(positions, offset, q, steps.spectrum.axes)
    if where.device != q.device:
        return None
    for x in (q, k):
        _check_places(where, steps.spectrum, x)
    how = fused.Turn.of(lanes, steps.spectrum.attention_factor, inverse)
    results = fused.fresh(ops, q), fused.fresh(ops, k)
    ops.rotate_qk_out.default(q, k, *results, where, steps.tensor, *how)
    return results


def rotate_qk_(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    *,
    inverse: bool = False,
    offset: int | Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`rotate_qk` in place."""
    steps = _as_steps(spectrum, q)
    return (
        rotate_(q, positions, steps, inverse=inverse, offset=offset),
        rotate_(k, positions, steps, inverse=inverse, offset=offset),
    )


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
    """x turned by given tables, for models that bring their own.

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
    _require_tensor(x)
    _require_bool(inverse)
    _require_tables(cos, sin)
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
    pairs = cos.shape[-1]
    lanes = pair_slices(x.shape[-1], pairs, layout, lane_offset, pairing or "standard")
    full = cos.dim() == x.dim()
    cos, sin = (t if full else broadcast_tables(t, x) for t in (cos, sin))
    if full:
        _require_broadcast(cos, x)
    if inverse:
        wide = compute_dtype(x.dtype)
        cos, sin = cos.to(wide), sin.to(wide)
        square = cos * cos + sin * sin
        cos, sin = cos / square, -sin / square
    if out is not None:
        _check_out(x, out)
        if torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad):
            raise ValueError("out= has no gradient; call without out=, or under torch.no_grad()")
    return _turn_by_tables(x, cos, sin, lanes, out)


def _turn_by_tables(
    x: Tensor, cos: Tensor, sin: Tensor, lanes: tuple[slice, slice], out: Tensor | None
) -> Tensor:
    """x turned by broadcast tables, by the C++ kernel where it can."""
    ops = fused.ops_for(x)
    flat = None if ops is None else _flat_tables(cos, sin, x)
    refused = out is not None and (fused.needs_derivative(x) or not fused.fits(x, out))
    if ops is None or flat is None or refused:
        turned = turn(x, cos, sin, lanes)
        return turned if out is None else out.copy_(turned)
    where = (lanes[0].start, lanes[1].start, lanes[0].step or 1)
    if out is None and fused.needs_derivative(x):
        return fused.RotateBy.apply(x, *flat, where)
    result = fused.fresh(ops, x) if out is None else out
    ops.rotate_by_out.default(x, result, *flat, *where)
    if out is not None and not out.is_inference():
        torch.autograd.graph.increment_version(out)
    return result


def _flat_tables(cos: Tensor, sin: Tensor, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Tables ``[..., tokens, pairs]`` as the kernel reads them; None if it cannot read these."""
    if fused.needs_derivative(cos) or fused.needs_derivative(sin):
        return None
    if cos.dim() > 2 and cos.shape[-3] == 1:
        cos, sin = cos.squeeze(-3), sin.squeeze(-3)
    elif cos.dim() > 2:
        return None
    if cos.shape[-2] != x.shape[-2] or fused.ops_for(cos) is None or fused.ops_for(sin) is None:
        return None
    wide = compute_dtype(x.dtype)
    return cos.to(wide).contiguous(), sin.to(wide).contiguous()


def _require_tables(cos: Tensor, sin: Tensor) -> None:
    for name, table in (("cos", cos), ("sin", sin)):
        if not isinstance(table, Tensor) or not table.dtype.is_floating_point:
            kind = table.dtype if isinstance(table, Tensor) else type(table).__name__
            raise TypeError(
                f"{name} must be a real floating tensor [..., tokens, rotary_dim/2], got {kind}"
            )
    if cos.shape != sin.shape:
        raise ValueError(f"cos {tuple(cos.shape)} and sin {tuple(sin.shape)} differ in shape")


def _require_broadcast(table: Tensor, x: Tensor) -> None:
    if any(t != 1 and t != n for t, n in zip(table.shape[:-1], x.shape[:-1], strict=True)):
        raise ValueError(
            f"tables of shape {tuple(table.shape)} do not broadcast over x {tuple(x.shape)}"
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
    plain = isinstance(x, Tensor) and not any(fused.needs_derivative(t) for t in (x, cos, sin))
    turned = rotate_by(
        x,
        cos,
        sin,
        layout=layout,
        lane_offset=lane_offset,
        pairing=pairing,
        inverse=inverse,
        out=x if plain else None,
    )
    return turned if plain else _in_place(x, turned)


def halve_tables(cos: Tensor, sin: Tensor, *, layout: str = "half") -> tuple[Tensor, Tensor]:
    """Tables ``[..., rotary_dim]`` that hold every angle twice, as ``[..., rotary_dim/2]``.

    ``layout="half"`` expects (θ₀…θₙ θ₀…θₙ), ``"interleaved"`` (θ₀ θ₀ θ₁ θ₁ …).

    Raises:
        TypeError: not real floating tensors.
        ValueError: odd width, shapes that differ, or the two copies differ.
    """
    _require_tables(cos, sin)
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
            worst = (first - second).abs().max().item()
            raise ValueError(
                f"the two copies in {name} differ by up to {worst:.3g}; they are not duplicated "
                f"in layout={layout!r}"
            )
        halves.append(first)
    return halves[0], halves[1]
