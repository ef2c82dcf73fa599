"""From tensors to what a kernel is launched with: everything checked, nothing run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.kernels.gpu.job import Job, Lanes, Source, job, rows_before
from ropewalk.kernels.gpu.plan import Plan
from ropewalk.kernels.gpu.rows import broadcast_strides

_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.float64})
_INTERPRETED_PROCESSORS = 4


class Launch(NamedTuple):
    """A kernel's arguments in order, with its job."""

    arguments: tuple[Any, ...]
    job: Job


def phases_launch(
    operands: Sequence[tuple[Tensor, Tensor]],
    positions: Tensor,
    steps: Tensor,
    scale: float,
    negate: bool,
    lanes: Lanes,
    cut: Plan | None = None,
) -> Launch | None:
    """What ``turn_by_phases`` is launched with, or None where nothing has to be done."""
    x = operands[0][0]
    _check_operands(operands)
    check_integers(positions, steps, x)
    check(steps.dim() in (2, 3), f"steps {tuple(steps.shape)} need [spectrum heads?, axes, pairs]")
    axes, pairs = steps.shape[-2:]
    several = axes > 1
    check(
        positions.dim() > several and (not several or positions.shape[-1] == axes),
        f"positions of shape {tuple(positions.shape)} do not fit steps {tuple(steps.shape)}",
    )
    spectrum_heads = steps.shape[0] if steps.dim() == 3 else 1
    for operand, _ in operands:
        heads = operand.shape[-3] if operand.dim() > 2 else 1
        check(
            heads % spectrum_heads == 0,
            f"{heads} heads are not a multiple of the {spectrum_heads} that have own frequencies",
        )
    places = positions.shape[:-1] if several else positions.shape
    at = broadcast_strides("positions", places, positions.stride()[: len(places)], rows_before(x))
    source = Source(at, positions.stride(-1) if several else 0, is_table=False)
    wanted = job(operands, [source], lanes, pairs, axes, spectrum_heads, processors(x.device), cut)
    if wanted is None:
        return None
    arguments: list[Any] = []
    for (t, out), strides, heads in zip(operands, wanted.operands, wanted.heads, strict=True):
        arguments += [t, out, *strides, heads]
    if len(operands) == 1:
        arguments += [None] * 5
    signed = -scale if negate else scale
    arguments += [positions, wanted.sources[0], steps.contiguous(), float(scale), float(signed)]
    arguments += [wanted.sizes, spectrum_heads, wanted.cut.shares, wanted.how]
    return Launch(tuple(arguments), wanted)


def tables_launch(
    x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, lanes: Lanes, cut: Plan | None = None
) -> Launch | None:
    """What ``turn_by_tables`` is launched with, or None where nothing has to be done."""
    _check_operands([(x, out)])
    check(
        cos.shape == sin.shape and cos.dim() >= 2,
        f"cos {tuple(cos.shape)} and sin {tuple(sin.shape)} must both be [..., tokens, pairs]",
    )
    sources = []
    for name, table in (("cos", cos), ("sin", sin)):
        check(table.dtype in _DTYPES, f"{name} is {table.dtype}; it must be real and floating")
        check(table.device == x.device, f"{name} is on {table.device}, x on {x.device}")
        at = broadcast_strides(name, table.shape[:-1], table.stride()[:-1], rows_before(x))
        sources.append(Source(at, table.stride(-1), is_table=True))
    wanted = job([(x, out)], sources, lanes, cos.shape[-1], 0, 1, processors(x.device), cut)
    if wanted is None:
        return None
    strides, heads = wanted.operands[0], wanted.heads[0]
    tables = cos, wanted.sources[0], sin, wanted.sources[1]
    numbers = wanted.sizes, wanted.cut.shares, wanted.how
    return Launch((x, out, *strides, heads, *tables, *numbers), wanted)


def check(condition: bool, message: str) -> None:
    """Refuse with ``message`` where the condition does not hold.

    Raises:
        ValueError: it does not.
    """
    if not condition:
        raise ValueError(message)


def check_integers(positions: Tensor, steps: Tensor, x: Tensor) -> None:
    """Refuse positions and steps that are not int64 on the device of x."""
    for name, numbers in (("positions", positions), ("steps", steps)):
        if numbers.dtype != torch.int64 or numbers.device != x.device:
            raise ValueError(
                f"{name} are {numbers.dtype} on {numbers.device}; they must be int64 on {x.device}"
            )


def _check_operands(operands: Sequence[tuple[Tensor, Tensor]]) -> None:
    first = operands[0][0]
    if first.dim() < 2 or first.dtype not in _DTYPES:
        raise ValueError(
            f"x is {tuple(first.shape)}, {first.dtype}; a rotation takes real floating "
            "[..., heads, tokens, head_dim]"
        )
    for x, out in operands:
        same = x.dtype == out.dtype == first.dtype and x.device == out.device == first.device
        if out.shape != x.shape or not same:
            raise ValueError(
                f"x is {_named(x)} and its result {_named(out)}; they must be alike, and q and k "
                "of one dtype on one device"
            )
        if x.shape[:-3] != first.shape[:-3] or x.shape[-2:] != first.shape[-2:]:
            raise ValueError(
                f"q {tuple(first.shape)} and k {tuple(x.shape)} may differ in heads alone"
            )


def _named(x: Tensor) -> str:
    return f"{tuple(x.shape)}, {x.dtype} on {x.device}"


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    if device.type == "xpu":
        return torch.xpu.get_device_properties(device).max_compute_units
    return _INTERPRETED_PROCESSORS
