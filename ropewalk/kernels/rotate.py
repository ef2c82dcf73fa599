r"""Rotation by the phases of positions: checked, and sent to the form that can do it.

A positive angle turns (x₀, x₁) to (x₀·cos − x₁·sin, x₀·sin + x₁·cos). ``inverse=True`` turns by the
negative angle and divides by attention_factor, so it undoes the rotation. Arithmetic is at least
float32, the result is rounded once to the dtype of x. The compiled kernel
(:mod:`ropewalk.kernels.fused`) and plain tensor arithmetic (:mod:`ropewalk.kernels.plain`) share
the process's sin and cos and give the same bits.
"""

from __future__ import annotations

from torch import Tensor

from ropewalk.kernels import fused
from ropewalk.kernels.arguments import (
    check_out,
    require_as_many_tokens,
    require_bool,
    require_changeable,
    require_starts,
    require_tensor,
)
from ropewalk.kernels.derivatives import watched
from ropewalk.kernels.kinds import ordinary
from ropewalk.kernels.phases import require_same_device, tables
from ropewalk.kernels.plain import broadcast_shape, broadcast_tables, compute_dtype, turn
from ropewalk.kernels.sharded import is_distributed, rotate_shards
from ropewalk.kernels.steps import Steps, require_whole
from ropewalk.positions.contract import token_positions
from ropewalk.spectra import Spectrum
from ropewalk.spectra.spectrum import no_spectrum


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
    turned = fused.one(x, positions, spectrum, inverse, offset, out)
    if turned is None and out is None:
        turned = watched(x, positions, spectrum, inverse, offset)
    if turned is not None:
        return turned
    require_tensor(x)
    steps = _as_steps(spectrum, x)
    tensors = (x, positions, steps.tensor, out)
    if not ordinary(*tensors) and is_distributed(*tensors):
        require_bool(inverse)
        how = {"inverse": inverse, "offset": offset, "out": out}
        return rotate_shards(rotate, x, positions, steps, **how)
    steps, where = checked(x, positions, steps, inverse, offset)
    if out is not None:
        check_out(x, out)
    turned = fused.one(x, where, steps, inverse, None, out)
    if turned is not None:
        return turned
    if out is not None:
        return out.copy_(_plainly(x, where, steps, inverse))
    turned = watched(x, where, steps, inverse, None)
    return _plainly(x, where, steps, inverse) if turned is None else turned


def checked(
    x: Tensor,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    inverse: object,
    offset: int | Tensor | None,
    name: str = "x",
) -> tuple[Steps, Tensor]:
    """Steps and int64 positions that fit x, or a refusal that calls x by ``name``."""
    steps = _as_steps(spectrum, x)
    require_bool(inverse)
    spectrum_lanes(steps.spectrum, x, name)
    where = token_positions(positions, offset, x, steps.spectrum.axes, of=name)
    require_starts(offset, x, name)
    if where.device != x.device:
        raise ValueError(
            f"{name} is on {x.device}, positions are on {where.device}; move one of them"
        )
    require_same_device(where, steps.tensor)
    _check_places(where, steps.spectrum, x)
    return steps, where


def _as_steps(spectrum: Spectrum | Steps, x: Tensor) -> Steps:
    if isinstance(spectrum, Spectrum):
        return spectrum.on(x.device)
    if isinstance(spectrum, Steps):
        require_whole(spectrum)
        return spectrum
    raise TypeError(f"spectrum must be a Spectrum or Steps, got {no_spectrum(spectrum)}")


def _check_places(where: Tensor, spectrum: Spectrum, x: Tensor) -> None:
    """Refuse positions or heads that do not fit x, in the words of the plain form."""
    shape = list(where.shape if spectrum.axes == 1 else where.shape[:-1])
    if spectrum.heads is not None:
        shape.insert(len(shape) - 1, spectrum.heads)
    broadcast_shape([*shape, spectrum.pairs], x, spectrum.heads is not None)


def spectrum_lanes(spectrum: Spectrum, x: Tensor, name: str = "x") -> tuple[slice, slice]:
    """The lanes of x that ``spectrum`` turns.

    Raises:
        ValueError: x has another head_dim, or fewer than two dimensions.
    """
    if x.dim() < 2 or x.shape[-1] != spectrum.head_dim:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}; this spectrum turns [..., heads, tokens, "
            f"{spectrum.head_dim}]"
        )
    return spectrum.lanes


def _plainly(x: Tensor, where: Tensor, steps: Steps, inverse: bool) -> Tensor:
    """x turned by plain tensor arithmetic, which everything can differentiate and trace."""
    cosine, sine = tables(where, steps, compute_dtype(x.dtype), inverse=inverse)
    per_head = steps.spectrum.heads is not None
    cosine, sine = (broadcast_tables(t, x, per_head) for t in (cosine, sine))
    return turn(x, cosine, sine, steps.spectrum.lanes)


def rotate_(
    x: Tensor,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    *,
    inverse: bool = False,
    offset: int | Tensor | None = None,
) -> Tensor:
    """:func:`rotate` in place; x is marked as modified and gradients stay right."""
    turned = fused.one(x, positions, spectrum, inverse, offset, x)
    if turned is not None:
        return turned
    require_tensor(x)
    held = spectrum.tensor if isinstance(spectrum, Steps) else None
    if not ordinary(x, positions, held):
        turned = rotate(x, positions, spectrum, inverse=inverse, offset=offset)
        require_changeable(x)
        return x.copy_(turned)
    if not fused.needs_derivative(x):
        require_changeable(x)
        return rotate(x, positions, spectrum, inverse=inverse, offset=offset, out=x)
    steps, where = checked(x, positions, spectrum, inverse, offset)
    require_changeable(x)
    if not fused.forward_mode():
        turned = watched(x, where, steps, inverse, None, in_place=True)
        if turned is not None:
            return turned
    return x.copy_(_plainly(x, where, steps, inverse))


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

    The kernel takes both in one pass, so sin and cos are computed once. A decoded q beside all of k
    lies at other positions than k: call :func:`rotate` of each.

    Raises:
        ValueError: q and k differ in tokens.
    """
    together = fused.two(q, k, positions, spectrum, inverse, offset, False)
    if together is not None:
        return together
    steps = fitting(q, k, spectrum)
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
    together = fused.two(q, k, positions, spectrum, inverse, offset, True)
    if together is not None:
        return together
    steps = fitting(q, k, spectrum)
    require_both_changeable(q, k, positions, steps, inverse, offset)
    return (
        rotate_(q, positions, steps, inverse=inverse, offset=offset),
        rotate_(k, positions, steps, inverse=inverse, offset=offset),
    )


def fitting(q: Tensor, k: Tensor, spectrum: Spectrum | Steps) -> Steps:
    """Steps that turn q and k, which are tensors of as many tokens, or a refusal."""
    require_tensor(q, "q")
    require_tensor(k, "k")
    steps = _as_steps(spectrum, q)
    spectrum_lanes(steps.spectrum, q, "q")
    spectrum_lanes(steps.spectrum, k, "k")
    require_as_many_tokens(q, k)
    return steps


def require_both_changeable(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    inverse: object,
    offset: int | Tensor | None,
) -> None:
    """Refuse k before q is changed. Whatever else than plain tensors is asked for itself later."""
    if not ordinary(q, k, positions):
        return
    for name, x in (("q", q), ("k", k)):
        checked(x, positions, spectrum, inverse, offset, name)
        compute_dtype(x.dtype)
        require_changeable(x, name)
