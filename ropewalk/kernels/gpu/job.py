"""What one launch has to do, in plain numbers: read off tensors, without touching their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ropewalk.kernels.gpu.plan import SEGMENT, Plan, plan, power_of_two
from ropewalk.kernels.gpu.rows import common_unit, rows_of


class Lanes(NamedTuple):
    """Pair c is lanes ``first + c·step`` and ``second + c·step``."""

    first: int
    second: int
    step: int

    def passing(self, pairs: int, head_dim: int) -> int:
        """Lanes of the longest run that does not turn.

        Raises:
            ValueError: the pairs do not fit in head_dim.
        """
        neighbours = self.step == 2 and self.second == self.first + 1
        halves = self.step == 1 and self.second >= self.first + pairs
        behind = self.first + 2 * pairs if neighbours else self.second + pairs
        if not (neighbours or halves) or self.first < 0 or behind > head_dim:
            raise ValueError(
                f"{pairs} pairs of lanes at {tuple(self)} do not fit in head_dim={head_dim}; "
                "(first, second, step) are those of ropewalk.kernels.fused.Turn"
            )
        between = 0 if neighbours else self.second - self.first - pairs
        return max(self.first, between, head_dim - behind)


class How(NamedTuple):
    """What a kernel is compiled for."""

    head_dim: int
    pairs: int
    first: int
    second: int
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


class Job(NamedTuple):
    """One launch: what is compiled, how it is cut, and the numbers that the kernel takes."""

    how: How
    cut: Plan
    sizes: tuple[int, ...]
    heads: tuple[int, ...]
    """Of each operand, for one spectrum head."""
    operands: tuple[tuple[Strides, Strides], ...]
    sources: tuple[Strides, ...]
    programs: int


class Source(NamedTuple):
    """Positions or a table over the rows: strides of ``rows`` and of its last dimension."""

    rows: tuple[int, ...]
    lane: int
    is_table: bool


def rows_before(x: Tensor) -> tuple[int, ...]:
    """The sizes of ``[..., tokens]`` in x ``[..., heads, tokens, head_dim]``."""
    return (*x.shape[:-3], x.shape[-2])


def job(
    operands: Sequence[tuple[Tensor, Tensor]],
    sources: Sequence[Source],
    lanes: Lanes,
    pairs: int,
    axes: int,
    spectrum_heads: int,
    processors: int,
    cut: Plan | None = None,
) -> Job | None:
    """The launch that turns ``operands`` (x, out), or None if they are empty."""
    x = operands[0][0]
    head_dim = x.shape[-1]
    passing = lanes.passing(pairs, head_dim)
    heads = tuple(_heads(t) for t, _ in operands)
    if head_dim == 0 or 0 in rows_before(x) or not any(heads):
        return None
    tensors = [t for pair in operands for t in pair]
    strides = [(*t.stride()[:-3], t.stride(-2)) for t in tensors]
    rows = rows_of(rows_before(x), [*strides, *(s.rows for s in sources)])
    own, others = rows.strides[: len(tensors)], rows.strides[len(tensors) :]
    by_head = [t.stride(-3) if _heads(t) > 1 else 0 for t in tensors]
    tables = [s for s, source in zip(others, sources, strict=True) if source.is_table]
    unit = common_unit([*by_head, *(n for s in (*own, *tables) for n in s)])
    copies = passing > 0 and not all(_same_place(*pair) for pair in operands)
    cut = cut or plan(
        rows.inner,
        rows.outer,
        max(heads) // spectrum_heads,
        spectrum_heads,
        pairs,
        passing if copies else 0,
        x.element_size(),
        processors,
    )
    dense = all(t.stride(-1) == 1 for t in tensors) and all(
        s.lane == 1 for s in sources if s.is_table
    )
    how = How(
        head_dim,
        pairs,
        lanes.first,
        lanes.second,
        lanes.step == 2,
        copies,
        dense,
        x.element_size() == 8,
        axes,
        unit,
        cut.block_rows,
        cut.block_pairs,
        min(power_of_two(passing), SEGMENT),
    )
    of_operands = [
        Strides(t.stride(-1), head // unit, tuple(n // unit for n in s))
        for t, head, s in zip(tensors, by_head, own, strict=True)
    ]
    of_sources = [
        Strides(source.lane, 0, tuple(n // unit for n in s) if source.is_table else s)
        for source, s in zip(sources, others, strict=True)
    ]
    blocks = -(-rows.inner // cut.block_rows)
    return Job(
        how,
        cut,
        rows.sizes,
        tuple(n // spectrum_heads for n in heads),
        tuple(zip(of_operands[::2], of_operands[1::2], strict=True)),
        tuple(of_sources),
        blocks * rows.outer * spectrum_heads * cut.shares,
    )


def _heads(x: Tensor) -> int:
    return x.shape[-3] if x.dim() > 2 else 1


def _same_place(x: Tensor, out: Tensor) -> bool:
    return x.data_ptr() == out.data_ptr() and x.stride() == out.stride()
