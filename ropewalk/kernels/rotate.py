r"""Rotation of pairs of lanes: the PyTorch reference of the one rotary operation.

A positive angle turns (x₀, x₁) to (x₀·cos − x₁·sin, x₀·sin + x₁·cos). ``inverse=True`` turns by the
negative angle and divides by attention_factor, so it undoes the rotation. Arithmetic is at least
float32, the result is rounded once to the dtype of x. Only the phases are opaque to autograd and
compilers; the rotation itself is plain tensor arithmetic, so every derivative is PyTorch's own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.kernels.lanes import join, pair_slices
from ropewalk.kernels.phases import tables
from ropewalk.kernels.steps import Steps
from ropewalk.positions.contract import token_positions
from ropewalk.spectra import Spectrum


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the arithmetic on values of ``dtype``: float64 for float64, else float32.

    Raises:
        TypeError: dtype is not a real floating dtype.
    """
    if dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise TypeError(
            f"x has dtype {dtype}; a rotation needs a real floating dtype: float32, "
            "bfloat16, float16 or float64"
        )
    return dtype if dtype == torch.float64 else torch.float32


def _require_tensor(x: object) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(
            f"x must be a tensor [..., heads, tokens, head_dim], got {type(x).__name__}"
        )


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


def broadcast_tables(table: Tensor, x: Tensor, head_tables: bool = False) -> Tensor:
    """``table`` shaped so that it multiplies lanes of x ``[..., heads, tokens, lanes]``.

    ``[tokens, pairs]`` serves every head and batch row; ``[batch, tokens, pairs]`` gets a head
    dimension; with ``head_tables`` the third dimension from the end is KV heads already, each
    repeated over its group.

    Raises:
        ValueError: the sizes do not fit.
    """
    if head_tables:
        heads, own = x.shape[-3] if x.dim() > 2 else 1, table.shape[-3]
        if heads % own:
            raise ValueError(f"x has {heads} heads, not a multiple of the spectrum's heads={own}")
        table = table.repeat_interleave(heads // own, dim=-3)
    elif table.dim() > 2:
        if x.dim() < 4:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; positions with a batch dimension need "
                "[batch, heads, tokens, head_dim]"
            )
        table = table.unsqueeze(-3)
    # Not ``t in (1, n)``: compilers find a symbolic 2 unequal to a plain one there.
    if table.dim() > x.dim() or any(
        t != 1 and t != n for t, n in zip(table.shape[::-1][1:], x.shape[::-1][1:], strict=False)
    ):
        raise ValueError(
            f"positions or tables of shape {tuple(table.shape)} do not broadcast over "
            f"x {tuple(x.shape)}; x is [..., heads, tokens, head_dim], positions are [tokens] "
            "or [batch, tokens]"
        )
    return table


def turn(x: Tensor, cosine: Tensor, sine: Tensor, lanes: tuple[slice, slice]) -> Tensor:
    """x with every pair turned by broadcast tables; differentiable in all three tensors."""
    wide = compute_dtype(x.dtype)
    first, second = x[..., lanes[0]].to(wide), x[..., lanes[1]].to(wide)
    cosine, sine = cosine.to(wide), sine.to(wide)
    return join(x, first * cosine - second * sine, first * sine + second * cosine, lanes)


def _deliver(result: Tensor, x: Tensor, out: Tensor | None) -> Tensor:
    if out is None:
        return result
    if torch.is_grad_enabled() and (result.requires_grad or out.requires_grad):
        raise ValueError("out= has no gradient; call without out=, or under torch.no_grad()")
    if out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
        raise ValueError(
            f"out has shape {tuple(out.shape)}, {out.dtype} on {out.device}; "
            f"x needs {tuple(x.shape)}, {x.dtype} on {x.device}"
        )
    _require_own_memory("out", out)
    return out.copy_(result)


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
    lanes = spectrum_lanes(steps.spectrum, x)
    where = token_positions(positions, offset, x, steps.spectrum.axes)
    if where.device != x.device:
        raise ValueError(f"x is on {x.device}, positions are on {where.device}; move one of them")
    cosine, sine = tables(where, steps, compute_dtype(x.dtype), inverse=inverse)
    per_head = steps.spectrum.heads is not None
    turned = turn(
        x, broadcast_tables(cosine, x, per_head), broadcast_tables(sine, x, per_head), lanes
    )
    return _deliver(turned, x, out)


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
    """:func:`rotate` of q and k at the same positions; head counts may differ."""
    steps = _as_steps(spectrum, q)
    return (
        rotate(q, positions, steps, inverse=inverse, offset=offset),
        rotate(k, positions, steps, inverse=inverse, offset=offset),
    )


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
    turned = rotate_qk(q, k, positions, spectrum, inverse=inverse, offset=offset)
    return _in_place(q, turned[0]), _in_place(k, turned[1])


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
    return _deliver(turn(x, cos, sin, lanes), x, out)


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
    turned = rotate_by(
        x, cos, sin, layout=layout, lane_offset=lane_offset, pairing=pairing, inverse=inverse
    )
    return _in_place(x, turned)


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
