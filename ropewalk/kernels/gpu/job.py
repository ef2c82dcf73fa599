"""What one launch has to do, in plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ropewalk.kernels.gpu.meta import Lanes, Operand
from ropewalk.kernels.gpu.plan import COPIES, SCALED, SEGMENT, Plan, plan, power_of_two
from ropewalk.kernels.gpu.rows import common_unit, rows_of


class How(NamedTuple):
    """What a kernel is compiled for."""

    head_dim: int
    pairs: int
    first: int
    second: int
    gap: int
    """The lane behind the first half of the pairs; ``second`` if there is none."""
    behind: int
    """The lane behind all pairs."""
    interleaved: bool
    copies: bool
    """Lanes that do not turn are written too."""
    dense: bool
    """Lanes lie side by side in every tensor."""
    wide: bool
    """float64 arithmetic."""
    axes: int
    unit: int
    """Elements in which strides are counted."""
    block_rows: int
    block_pairs: int
    segment: int
    """Lanes that are copied at a time."""


class Strides(NamedTuple):
    """Of one tensor: its lanes (pairs, axes) in elements; its heads and rows in units."""

    lane: int
    head: int
    rows: tuple[int, ...]


class Source(NamedTuple):
    """Positions or a table over the rows: strides of ``rows``, heads and the last dimension."""

    rows: tuple[int, ...]
    lane: int
    head: int = 0
    is_table: bool = False


class Job(NamedTuple):
    """One launch."""

    how: How
    cut: Plan
    programs: int
    sizes: tuple[int, ...]
    operands: tuple[tuple[Strides, Strides, int], ...]
    """Of each: strides of x and out, heads that share their angles."""
    sources: tuple[Strides, ...]


class Launch(NamedTuple):
    """A kernel's name, its job, and what it takes behind the pointers and factors."""

    kernel: str
    job: Job
    numbers: tuple[Any, ...]


def job_of(
    operands: Sequence[Operand],
    sources: Sequence[Source],
    lanes: Lanes,
    pairs: int,
    axes: int,
    own: int,
    processors: int,
    cut: Plan | None = None,
    *,
    whole: bool = False,
    beside: Sequence[int] = (),
) -> Job | None:
    """The launch that turns ``operands``, or None if they are empty.

    ``own`` is the number of heads with angles of their own, each for a group of heads of x.
    ``whole``: lanes that do not turn are written in place too. ``beside``: further strides that are
    to be counted in the same unit.
    """
    x = operands[0].x
    head_dim = x.shape[-1]
    passing = lanes.passing(pairs, head_dim)
    heads = max(operand.x.heads for operand in operands)
    if 0 in (head_dim, heads, *x.before):
        return None
    tensors = [meta for operand in operands for meta in (operand.x, operand.out)]
    rows = rows_of(
        x.before, [*(t.strides_before for t in tensors), *(source.rows for source in sources)]
    )
    mine, others = rows.strides[: len(tensors)], rows.strides[len(tensors) :]
    tables = [
        (source.head, *s) for source, s in zip(sources, others, strict=True) if source.is_table
    ]
    unit = common_unit(
        [
            *(t.head_stride for t in tensors),
            *(stride for s in (*mine, *tables, beside) for stride in s),
        ]
    )
    copies = passing > 0 and (whole or not all(operand.in_place for operand in operands))
    interleaved = lanes.step == 2
    size = x.dtype.itemsize
    cut = cut or plan(
        rows.inner,
        rows.outer,
        heads // own,
        own,
        pairs,
        passing if copies else 0,
        size,
        processors,
        SCALED if whole else COPIES,
    )
    how = How(
        head_dim=head_dim,
        pairs=pairs,
        first=lanes.first,
        second=lanes.second,
        gap=lanes.second if interleaved else lanes.first + pairs,
        behind=lanes.first + 2 * pairs if interleaved else lanes.second + pairs,
        interleaved=interleaved,
        copies=copies,
        dense=all(t.strides[-1] == 1 for t in tensors)
        and all(source.lane == 1 for source in sources if source.is_table),
        wide=size == 8,
        axes=axes,
        unit=unit,
        block_rows=cut.block_rows,
        block_pairs=cut.block_pairs,
        segment=min(power_of_two(passing), SEGMENT),
    )
    in_units = [
        Strides(t.strides[-1], t.head_stride // unit, tuple(stride // unit for stride in s))
        for t, s in zip(tensors, mine, strict=True)
    ]
    return Job(
        how,
        cut,
        -(-rows.inner // cut.block_rows) * rows.outer * own * cut.shares,
        rows.sizes,
        tuple(
            (in_units[2 * i], in_units[2 * i + 1], operand.x.heads // own)
            for i, operand in enumerate(operands)
        ),
        tuple(
            Strides(source.lane, source.head // unit, tuple(n // unit for n in s))
            if source.is_table
            else Strides(source.lane, 0, s)
            for source, s in zip(sources, others, strict=True)
        ),
    )
