r"""Phases: p · step mod 2⁶⁴, and their sin and cos.

The two operators here are opaque to compilers on purpose: Inductor treats ``arange · constant`` as
an unbounded integer and silently gives wrong values once the product passes 2⁶³. Everything that
multiplies positions by steps therefore happens inside them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.kernels.angles import as_planes, sincos_of, tables_by_torch
from ropewalk.kernels.arguments import require_bool
from ropewalk.kernels.devices import kernel_on
from ropewalk.kernels.opaque import decomposes, opaque
from ropewalk.kernels.portable import reduced_phase
from ropewalk.kernels.steps import Steps, require_whole
from ropewalk.positions.contract import integer_positions


def require_same_device(positions: Tensor, frequencies: Tensor) -> None:
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
    require_same_device(positions, steps)
    pairs, axes = steps.shape[-1], steps.shape[-2]
    lead = list(positions.shape if axes == 1 else positions.shape[:-1])
    if steps.dim() == 3:
        lead.insert(len(lead) - 1, steps.shape[0])
    return [*lead, pairs]


def _float(bits: int) -> torch.dtype:
    """The operators take a width and no dtype: packages that torch 2.10 compiles ahead of time
    hand them another dtype than the one that was asked for.
    """
    return torch.float64 if bits == 64 else torch.float32


def _bits(dtype: torch.dtype) -> int:
    return 64 if dtype == torch.float64 else 32


def _empty_tables(positions, frequencies, factor, bits):
    shape, dtype = _table_shape(positions, frequencies), _float(bits)
    return positions.new_empty(shape, dtype=dtype), positions.new_empty(shape, dtype=dtype)


def _vmap(op):
    """Batched positions are just more leading dimensions; batched frequencies are looped over."""

    def rule(info, in_dims, positions, frequencies, factor, bits):
        at_positions, at_frequencies = in_dims[:2]
        if at_frequencies is None:
            return op(positions.movedim(at_positions, 0), frequencies, factor, bits), (0, 0)
        rows = [
            op(
                positions if at_positions is None else positions.select(at_positions, i),
                frequencies.select(at_frequencies, i),
                factor,
                bits,
            )
            for i in range(info.batch_size)
        ]
        cosines, sines = zip(*rows, strict=True)
        return (torch.stack(cosines), torch.stack(sines)), (0, 0)

    return rule


@opaque(
    "phase_tables(Tensor positions, Tensor steps, float factor, int bits) -> (Tensor, Tensor)",
    fake=_empty_tables,
    vmap=_vmap,
)
def phase_tables_op(
    positions: Tensor, steps: Tensor, factor: float, bits: int
) -> tuple[Tensor, Tensor]:
    """:func:`phase_tables` as an operator."""
    require_same_device(positions, steps)
    kernel = kernel_on(positions.device.type)
    if kernel.compiled:
        made = _empty_tables(positions, steps, factor, bits)
        kernel.ops.phase_tables(positions.contiguous(), steps.contiguous(), factor, *made)
        return made
    return tables_by_torch(positions, steps, factor, _float(bits))


@decomposes(phase_tables_op)
def _portable_phase_tables(
    positions: Tensor, steps: Tensor, factor: float, bits: int
) -> tuple[Tensor, Tensor]:
    """The same in operations that any runtime has and no product that overflows."""
    planes = as_planes(positions, steps.shape[-2])
    sine, cosine = sincos_of(reduced_phase(planes, steps), _float(bits), factor)
    return cosine, sine


def phase_tables(
    positions: Tensor, steps: Tensor, factor: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin of the phases of integer positions, times ``factor``, in float32 or float64."""
    return phase_tables_op(positions, steps, factor, _bits(dtype))


@opaque(
    "float_tables(Tensor positions, Tensor inv_freq, float factor, int bits) -> (Tensor, Tensor)",
    fake=_empty_tables,
    vmap=_vmap,
)
def float_tables_op(
    positions: Tensor, inv_freq: Tensor, factor: float, bits: int
) -> tuple[Tensor, Tensor]:
    """:func:`float_tables` as an operator."""
    require_same_device(positions, inv_freq)
    return _float_tables(positions, inv_freq, factor, bits)


@decomposes(float_tables_op)
def _float_tables(
    positions: Tensor, inv_freq: Tensor, factor: float, bits: int
) -> tuple[Tensor, Tensor]:
    planes = as_planes(positions, inv_freq.shape[-2]).to(inv_freq.dtype)
    if inv_freq.dim() == 3:
        planes = planes.unsqueeze(-3)
    angle = planes[..., 0, None] * inv_freq[..., 0, None, :]
    for axis in range(1, inv_freq.shape[-2]):
        angle = angle + planes[..., axis, None] * inv_freq[..., axis, None, :]
    angle = angle.to(_float(bits))
    return angle.cos() * factor, angle.sin() * factor


def float_tables(
    positions: Tensor, inv_freq: Tensor, factor: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin of position · inv_freq multiplied in inv_freq's own float dtype.

    This is the usual product, with its rounding: in float32 it errs by 4.8e-3 rad at position
    131,072. It exists for comparison with models that were trained on it.
    """
    return float_tables_op(positions, inv_freq, factor, _bits(dtype))


def tables(
    positions: Tensor, steps: Steps, dtype: torch.dtype, *, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """cos and sin of ``positions`` in ``dtype``; attention_factor multiplies them.

    ``inverse`` gives the tables of the undoing rotation: −angle, divided by attention_factor.

    Raises:
        TypeError: positions are not integers, ``steps`` no Steps, ``dtype`` no floating dtype.
        ValueError: the last dimension of positions is not the axes.
    """
    if not isinstance(steps, Steps):
        raise TypeError(
            f"steps must be Steps, got {type(steps).__name__}; write Steps.of(spectrum, device)"
        )
    require_whole(steps)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype={dtype!r} must be a floating torch.dtype, such as torch.float32")
    require_bool(inverse)
    positions = integer_positions(positions, steps.spectrum.axes)
    factor = float(steps.spectrum.written_factor)
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    cosine, sine = phase_tables(positions, steps.tensor, 1 / factor if inverse else factor, wide)
    return cosine.to(dtype), (-sine if inverse else sine).to(dtype)
