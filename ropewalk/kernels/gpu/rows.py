"""The dimensions before a head's lanes, in the fewest that describe the same memory.

A launch sees rows: one inner dimension that programs take in blocks, and outer ones that they look
up. Dimensions of size 1 vanish and neighbours that step evenly through every tensor become one, so
one decoded token of many sequences is a block of rows, and so is a packed ``[batch, tokens, …]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ropewalk.kernels.gpu.misfit import Misfit

FEW = 16
"""An inner dimension of fewer rows than this gives way to a larger one."""


class Rows(NamedTuple):
    """``sizes`` and, for each tensor, ``strides``: the inner dimension, then at least one outer."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def inner(self) -> int:
        """Rows of the dimension that is taken in blocks."""
        return self.sizes[0]

    @property
    def outer(self) -> int:
        """How often the inner dimension is walked through."""
        return prod(self.sizes[1:])


def rows_of(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Rows:
    """Dimensions ``sizes``, outermost first and all ≥ 1, with the ``strides`` of every tensor."""
    dims: list[tuple[int, tuple[int, ...]]] = []
    for size, steps in zip(reversed(sizes), zip(*map(reversed, strides), strict=True), strict=True):
        if size == 1:
            continue
        if dims and all(
            s == dims[-1][0] * below for s, below in zip(steps, dims[-1][1], strict=True)
        ):
            dims[-1] = (dims[-1][0] * size, dims[-1][1])
        else:
            dims.append((size, steps))
    if dims and dims[0][0] < FEW:
        dims.insert(0, dims.pop(max(range(len(dims)), key=lambda d: dims[d][0])))
    dims += [(1, (0,) * len(strides))] * (2 - len(dims))
    return Rows(
        tuple(size for size, _ in dims), tuple(zip(*(steps for _, steps in dims), strict=True))
    )


def broadcast_strides(
    name: str, sizes: Sequence[int], strides: Sequence[int], onto: Sequence[int]
) -> tuple[int, ...]:
    """Strides of a tensor ``[..., tokens]`` over the dimensions ``onto``, 0 where it repeats.

    Raises:
        Misfit: its sizes do not broadcast.
    """
    missing = len(onto) - len(sizes)
    if (
        missing < 0
        or not sizes
        or any(size not in (1, n) for size, n in zip(sizes, onto[missing:], strict=True))
    ):
        raise Misfit(
            f"{name} of shape {tuple(sizes)} do not broadcast over [..., tokens] = {tuple(onto)}"
        )
    own = (0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True))
    return (0,) * missing + tuple(own)


def common_unit(strides: Sequence[int], most: int = 16) -> int:
    """The largest power of two up to ``most`` that divides all strides.

    The compiler is told strides in this unit, and so knows how wide a load may be.
    """
    unit = most
    while any(stride % unit for stride in strides):
        unit //= 2
    return unit
