"""From what is known of tensors to a checked launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from ropewalk.kernels.gpu.job import Launch, Source, job_of
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.plan import Plan
from ropewalk.kernels.gpu.rows import broadcast_strides

DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.float64})


def phases_launch(
    operands: Sequence[Operand],
    positions: Meta,
    steps: Meta,
    lanes: Lanes,
    cut: Plan | None = None,
) -> Launch | None:
    """The launch of ``turn_by_phases``, or None if there is nothing to turn.

    Raises:
        ValueError: sizes, dtypes or devices do not fit.
    """
    x = operands[0].x
    _check_operands(operands)
    check_integers(positions, steps, x.device)
    axes, pairs = steps.shape[-2:]
    spectrum_heads = steps.shape[0] if len(steps.shape) > 2 else 1
    several = axes > 1
    places = positions.shape[:-1] if several else positions.shape
    check(
        len(positions.shape) > several and (not several or positions.shape[-1] == axes),
        f"positions {tuple(positions.shape)} do not fit steps {tuple(steps.shape)}",
    )
    for operand in operands:
        check(
            spectrum_heads > 0 and operand.x.heads % spectrum_heads == 0,
            f"{operand.x.heads} heads are not a multiple of the spectrum's {spectrum_heads}",
        )
    at = broadcast_strides("positions", places, positions.strides[: len(places)], x.before)
    source = Source(at, positions.strides[-1] if several else 0, is_table=False)
    job = job_of(operands, [source], lanes, pairs, axes, spectrum_heads, processors(x.device), cut)
    if job is None:
        return None
    q, k = job.operands if len(operands) == 2 else (*job.operands, (None, None, None))
    rest = job.sources[0], job.sizes, spectrum_heads, job.cut.shares, job.how
    return Launch("turn_by_phases", job, (*q, *k, *rest))


def tables_launch(
    operand: Operand, cos: Meta, sin: Meta, lanes: Lanes, cut: Plan | None = None
) -> Launch | None:
    """The launch of ``turn_by_tables``, or None if there is nothing to turn.

    Raises:
        ValueError: sizes, dtypes or devices do not fit.
    """
    x = operand.x
    _check_operands([operand])
    dims = len(cos.shape)
    check(
        cos.shape == sin.shape and dims >= 2,
        f"cos {tuple(cos.shape)} and sin {tuple(sin.shape)} must both be [..., tokens, pairs]",
    )
    sources = []
    for name, table in (("cos", cos), ("sin", sin)):
        check(
            table.dtype in DTYPES and table.device == x.device,
            f"{name} is {table}; it must be real and floating on {x.device}",
        )
        at = broadcast_strides(name, table.shape[:-1], table.strides[:-1], x.before)
        sources.append(Source(at, table.strides[-1], is_table=True))
    job = job_of([operand], sources, lanes, cos.shape[-1], 0, 1, processors(x.device), cut)
    if job is None:
        return None
    rest = *job.sources, job.sizes, job.cut.shares, job.how
    return Launch("turn_by_tables", job, (*job.operands[0], *rest))


def check(condition: bool, message: str) -> None:
    """Refuse where the condition does not hold.

    Raises:
        ValueError: it does not.
    """
    if not condition:
        raise ValueError(message)


def check_integers(positions: Meta, steps: Meta, device: torch.device) -> None:
    """Refuse positions and steps that are not int64 on ``device``, or steps of another rank."""
    for name, numbers in (("positions", positions), ("steps", steps)):
        check(
            numbers.dtype == torch.int64 and numbers.device == device,
            f"{name} are {numbers}; they must be int64 on {device}",
        )
    check(
        len(steps.shape) in (2, 3),
        f"steps {tuple(steps.shape)} must be [axes, pairs] or [heads, axes, pairs]",
    )


def _check_operands(operands: Sequence[Operand]) -> None:
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


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a device; a few where the interpreter stands in for one."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    if device.type == "xpu":
        return torch.xpu.get_device_properties(device).max_compute_units
    return 4
