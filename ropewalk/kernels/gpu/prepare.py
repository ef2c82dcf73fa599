"""From what is known of tensors to a checked launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from ropewalk.kernels.gpu.job import Job, Launch, Source, job_of
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.misfit import check
from ropewalk.kernels.gpu.plan import Plan
from ropewalk.kernels.gpu.rows import broadcast_strides

DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.float64})


def phases_launch(
    operands: Sequence[Operand],
    positions: Meta | None,
    steps: Meta,
    lanes: Lanes,
    cut: Plan | None = None,
) -> Launch | None:
    """The launch of ``turn_by_phases``, or None if there is nothing to turn.

    Raises:
        Misfit: sizes, dtypes or devices do not fit.
    """
    check_operands(operands)
    axes, pairs, own = check_steps(steps, operands)
    x = operands[0].x
    source = places(x, positions, axes)
    job = job_of(operands, [source], lanes, pairs, axes, own, processors(x.device), cut)
    return None if job is None else Launch("turn_by_phases", job, _by_phases(job, own))


def normed_launch(
    operands: Sequence[Operand],
    weights: Sequence[Meta | None],
    positions: Meta | None,
    steps: Meta,
    lanes: Lanes,
    cut: Plan | None = None,
) -> Launch | None:
    """The launch of ``turn_normed``, or None if there is nothing to turn.

    Raises:
        Misfit: sizes, dtypes or devices do not fit.
    """
    check_operands(operands)
    axes, pairs, own = check_steps(steps, operands)
    x = operands[0].x
    for weight in weights:
        check(
            weight is None
            or (
                weight.shape == x.shape[-1:]
                and weight.strides == (1,)
                and weight.dtype in DTYPES
                and weight.device == x.device
            ),
            f"the weight is {weight}; it must be real, floating, contiguous and "
            f"{tuple(x.shape[-1:])} on {x.device}",
        )
    source, many = places(x, positions, axes), processors(x.device)
    job = job_of(operands, [source], lanes, pairs, axes, own, many, cut, whole=True)
    return None if job is None else Launch("turn_normed", job, _by_phases(job, own))


def _by_phases(job: Job, own: int) -> tuple[Any, ...]:
    numbers = *job.operands[0], *_second(job.operands)
    return *numbers, job.sources[0], job.sizes, own, job.cut.shares, job.how


def places(x: Meta, positions: Meta | None, axes: int) -> Source:
    """Where each row's position lies; without positions the same strides count tokens."""
    if positions is None:
        check(axes == 1, f"{axes} axes need positions: [..., tokens, {axes}]")
        return Source((*(0 for _ in x.before[1:]), 1), 0)
    check_integers("positions", positions, x.device)
    several = axes > 1
    places = positions.shape[:-1] if several else positions.shape
    fits = len(places) > 0 and places[-1] == x.before[-1]
    check(
        fits and (not several or positions.shape[-1] == axes),
        f"positions {tuple(positions.shape)} do not fit {x.before[-1]} tokens on {axes} axes",
    )
    at = broadcast_strides("positions", places, positions.strides[: len(places)], x.before)
    return Source(at, positions.strides[-1] if several else 0)


def tables_launch(
    operands: Sequence[Operand], cos: Meta, sin: Meta, lanes: Lanes, cut: Plan | None = None
) -> Launch | None:
    """The launch of ``turn_by_tables``, or None if there is nothing to turn.

    Raises:
        Misfit: sizes, dtypes or devices do not fit.
    """
    x = operands[0].x
    check_operands(operands)
    dims = len(cos.shape)
    check(
        cos.shape == sin.shape and dims >= 2,
        f"cos {tuple(cos.shape)} and sin {tuple(sin.shape)} must both be [..., tokens, pairs]",
    )
    headed = dims == len(x.shape) and dims > 2
    own = cos.shape[-3] if headed else 1
    _check_heads(operands, own)
    sources = []
    for name, table in (("cos", cos), ("sin", sin)):
        check(
            table.dtype in DTYPES and table.device == x.device,
            f"{name} is {table}; it must be real and floating on {x.device}",
        )
        sizes, strides = (table.before, table.strides_before) if headed else (
            table.shape[:-1], table.strides[:-1]
        )  # fmt: skip
        at = broadcast_strides(name, sizes, strides, x.before)
        head = table.strides[-3] if own > 1 else 0
        sources.append(Source(at, table.strides[-1], head, is_table=True))
    job = job_of(operands, sources, lanes, cos.shape[-1], 0, own, processors(x.device), cut)
    if job is None:
        return None
    numbers = *job.operands[0], *_second(job.operands)
    return Launch(
        "turn_by_tables", job, (*numbers, *job.sources, job.sizes, own, job.cut.shares, job.how)
    )


def _second(operands: Sequence[tuple]) -> tuple:
    """Strides and heads of k, or nothing."""
    return operands[1] if len(operands) == 2 else (None, None, None)


def check_integers(name: str, numbers: Meta, device: torch.device) -> None:
    """Refuse what is not int64 on ``device``."""
    check(
        numbers.dtype == torch.int64 and numbers.device == device,
        f"{name} are {numbers}; they must be int64 on {device}",
    )


def check_steps(steps: Meta, operands: Sequence[Operand]) -> tuple[int, int, int]:
    """(axes, pairs, heads with angles of their own) of steps that fit the operands."""
    check_integers("steps", steps, operands[0].x.device)
    check(
        len(steps.shape) in (2, 3),
        f"steps {tuple(steps.shape)} must be [axes, pairs] or [heads, axes, pairs]",
    )
    own, axes, pairs = (1, *steps.shape)[-3:]
    _check_heads(operands, own)
    return axes, pairs, own


def _check_heads(operands: Sequence[Operand], own: int) -> None:
    for operand in operands:
        heads = operand.x.heads
        check(
            heads % own == 0 if own else heads == 0,
            f"{heads} heads are not a multiple of the {own} that have own angles",
        )


def check_operands(operands: Sequence[Operand]) -> None:
    """Refuse operands that are not alike, or results that are not memory of their own."""
    first = operands[0].x
    check(
        len(first.shape) >= 2 and first.dtype in DTYPES,
        f"x is {first}; a rotation takes real floating [..., heads, tokens, head_dim]",
    )
    for x, out, _ in operands:
        check(
            x.shape == out.shape
            and x.dtype == out.dtype == first.dtype
            and x.device == out.device == first.device,
            f"x is {x} and its result {out}; they must be alike, as must q and k but for heads",
        )
        check(
            len(x.shape) == len(first.shape)
            and x.shape[:-3] == first.shape[:-3]
            and x.shape[-2:] == first.shape[-2:],
            f"q {tuple(first.shape)} and k {tuple(x.shape)} may differ in heads alone",
        )
        check(
            0 not in (stride for n, stride in zip(out.shape, out.strides, strict=True) if n > 1),
            f"the result {out} is expanded: several places share one memory",
        )


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a device; a few where the interpreter stands in for one."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    if device.type == "xpu":
        return torch.xpu.get_device_properties(device).max_compute_units
    return 4
