r"""Phases: p · step mod 2⁶⁴, and their sin and cos.

The two operators here are opaque to compilers on purpose: Inductor treats ``arange · constant`` as
an unbounded integer and silently gives wrong values once the product passes 2⁶³. Everything that
multiplies positions by steps therefore happens inside them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.kernels.devices import operators
from ropewalk.kernels.opaque import opaque
from ropewalk.kernels.steps import Steps
from ropewalk.positions.contract import integer_positions

_QUARTER = 1 << 62
_EIGHTH = 1 << 61
_RADIANS = 2 * math.pi / 2.0**64
_RADIANS_27 = round(2 * math.pi * 2**27)
"""A turn in units of 2⁻²⁷ rad: 30 bits, so that it times 32 bits of a remainder fits int64."""
_WITHOUT_FLOAT64 = frozenset({"mps"})
"""Device types that lack float64."""


def phase(positions: Tensor, steps: Tensor) -> Tensor:
    """Σ_axes position · step mod 2⁶⁴, in units of 2⁻⁶⁴ turn.

    Args:
        positions: int64 ``[..., tokens, axes]``.
        steps: int64 ``[axes, pairs]`` or ``[heads, axes, pairs]``.

    Returns:
        int64 ``[..., tokens, pairs]``, or ``[..., heads, tokens, pairs]``.
    """
    if steps.dim() == 3:
        positions = positions.unsqueeze(-3)
    total = positions[..., 0, None] * steps[..., 0, None, :]
    for axis in range(1, steps.shape[-2]):
        total = total + positions[..., axis, None] * steps[..., axis, None, :]
    return total


def sincos(phases: Tensor, dtype: torch.dtype, factor: float = 1.0) -> tuple[Tensor, Tensor]:
    """sin and cos of int64 phases, times ``factor``, rounded once to ``dtype``.

    The nearest quarter turn is split off in integers, so the float only ever sees
    [−π/4, π/4]: error ≤ 1e-15 for float64, ≤ 1.2e-7 for float32.
    """
    quadrant = (phases + _EIGHTH) >> 62
    remainder = phases - quadrant * _QUARTER
    narrow = phases.device.type in _WITHOUT_FLOAT64
    sine, cosine = (_small_float32 if narrow else _small_float64)(remainder)
    if factor != 1.0:
        sine, cosine = sine * factor, cosine * factor
    return _turn_quadrant(sine, cosine, quadrant, dtype)


def _small_float64(remainder: Tensor) -> tuple[Tensor, Tensor]:
    """sin and cos of a remainder in [−2⁶¹, 2⁶¹), that is [−π/4, π/4) rad."""
    angle = remainder.to(torch.float64) * _RADIANS
    return torch.sin(angle), torch.cos(angle)


def _small_float32(remainder: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`_small_float64` for devices without float64.

    The angle is multiplied out in integers, in units of 2⁻⁶¹ rad, so that float32 rounds it once.
    """
    angle = ((remainder >> 30) * _RADIANS_27).to(torch.float32) * 2.0**-61
    return torch.sin(angle), torch.cos(angle)


def _turn_quadrant(
    sine: Tensor, cosine: Tensor, quadrant: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """sin and cos of angle + quadrant · π/2."""
    sine, cosine = sine.to(dtype), cosine.to(dtype)
    odd = (quadrant & 1) == 1
    first, second = torch.where(odd, cosine, sine), torch.where(odd, sine, cosine)
    negative_sine = (quadrant & 2) == 2
    negative_cosine = ((quadrant + 1) & 2) == 2
    return (
        torch.where(negative_sine, -first, first),
        torch.where(negative_cosine, -second, second),
    )


def _as_planes(positions: Tensor, axes: int) -> Tensor:
    """Positions with their axes as the last dimension, also when there is one axis."""
    return positions.unsqueeze(-1) if axes == 1 else positions


def _same_device(positions: Tensor, frequencies: Tensor) -> None:
    """Refuse a mix of devices; with "meta" among them the result would be uninitialised memory.

    Raises:
        ValueError: the devices differ.
    """
    if positions.device != frequencies.device:
        raise ValueError(
            f"positions are on {positions.device}, the frequencies on {frequencies.device}; move "
            "one of them (a module: .to(device), or to_empty(device=…) from meta)"
        )


def _table_shape(positions: Tensor, steps: Tensor) -> list[int]:
    """Shape of cos and sin; works on symbolic sizes."""
    _same_device(positions, steps)
    pairs, axes = steps.shape[-1], steps.shape[-2]
    lead = list(positions.shape if axes == 1 else positions.shape[:-1])
    if steps.dim() == 3:
        lead.insert(len(lead) - 1, steps.shape[0])
    return [*lead, pairs]


def _empty_tables(positions, frequencies, factor, dtype):
    shape = _table_shape(positions, frequencies)
    return positions.new_empty(shape, dtype=dtype), positions.new_empty(shape, dtype=dtype)


def _vmap(op):
    """Batched positions are just more leading dimensions; batched frequencies are looped over."""

    def rule(info, in_dims, positions, frequencies, factor, dtype):
        at_positions, at_frequencies = in_dims[:2]
        if at_frequencies is None:
            return op(positions.movedim(at_positions, 0), frequencies, factor, dtype), (0, 0)
        rows = [
            op(
                positions if at_positions is None else positions.select(at_positions, i),
                frequencies.select(at_frequencies, i),
                factor,
                dtype,
            )
            for i in range(info.batch_size)
        ]
        cosines, sines = zip(*rows, strict=True)
        return (torch.stack(cosines), torch.stack(sines)), (0, 0)

    return rule


@opaque(
    "phase_tables(Tensor positions, Tensor steps, float factor, ScalarType dtype)"
    " -> (Tensor, Tensor)",
    fake=_empty_tables,
    vmap=_vmap,
)
def phase_tables(
    positions: Tensor, steps: Tensor, factor: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin of the phases of integer positions, times ``factor``, in ``dtype``."""
    _same_device(positions, steps)
    ops = operators(positions.device.type)
    if ops is not None and dtype in (torch.float32, torch.float64):
        made = _empty_tables(positions, steps, factor, dtype)
        ops.phase_tables_out.default(positions.contiguous(), steps.contiguous(), factor, *made)
        return made
    sine, cosine = sincos(phase(_as_planes(positions, steps.shape[-2]), steps), dtype, factor)
    return cosine, sine


@opaque(
    "float_tables(Tensor positions, Tensor inv_freq, float factor, ScalarType dtype)"
    " -> (Tensor, Tensor)",
    fake=_empty_tables,
    vmap=_vmap,
)
def float_tables(
    positions: Tensor, inv_freq: Tensor, factor: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin of position · inv_freq multiplied in inv_freq's own float dtype.

    This is the usual product, with its rounding: in float32 it errs by 4.8e-3 rad at position
    131,072. It exists for comparison with models that were trained on it.
    """
    _same_device(positions, inv_freq)
    planes = _as_planes(positions, inv_freq.shape[-2]).to(inv_freq.dtype)
    if inv_freq.dim() == 3:
        planes = planes.unsqueeze(-3)
    angle = planes[..., 0, None] * inv_freq[..., 0, None, :]
    for axis in range(1, inv_freq.shape[-2]):
        angle = angle + planes[..., axis, None] * inv_freq[..., axis, None, :]
    angle = angle.to(dtype)
    return angle.cos() * factor, angle.sin() * factor


def tables(
    positions: Tensor, steps: Steps, dtype: torch.dtype, *, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """cos and sin of ``positions`` in ``dtype``; attention_factor multiplies them.

    ``inverse`` gives the tables of the undoing rotation: −angle, divided by attention_factor.

    Raises:
        TypeError: positions are not integers.
        ValueError: the last dimension of positions is not the axes.
    """
    positions = integer_positions(positions, steps.spectrum.axes)
    factor = steps.spectrum.attention_factor
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    cosine, sine = phase_tables(positions, steps.tensor, 1 / factor if inverse else factor, wide)
    return cosine.to(dtype), (-sine if inverse else sine).to(dtype)
