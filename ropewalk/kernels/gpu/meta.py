"""What a launch depends on apart from values: the key under which all else is kept."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.kernels.gpu.misfit import check
from ropewalk.spectra.lanes import spelt

ALIGNMENT = 16
"""Bytes at whose multiples the widest loads start."""


class Meta(NamedTuple):
    """A tensor without its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    aligned: bool
    """It starts at a multiple of :data:`ALIGNMENT`, for which kernels are compiled apart."""

    @staticmethod
    def of(t: Tensor) -> Meta:
        """Read off a tensor.

        Raises:
            Misfit: the memory holds the negatives of its values.
        """
        check(not t.is_neg(), "a negated view; use .resolve_neg()")
        return Meta(t.shape, t.stride(), t.dtype, t.device, t.data_ptr() % ALIGNMENT == 0)

    def __str__(self) -> str:
        return f"{tuple(self.shape)}, {self.dtype} on {self.device}"

    @property
    def heads(self) -> int:
        """Heads of x ``[..., heads, tokens, head_dim]``."""
        return self.shape[-3] if len(self.shape) > 2 else 1

    @property
    def head_stride(self) -> int:
        """Elements from one head to the next."""
        return self.strides[-3] if self.heads > 1 else 0

    @property
    def before(self) -> tuple[int, ...]:
        """The sizes of ``[..., tokens]``."""
        return (*self.shape[:-3], self.shape[-2])

    @property
    def strides_before(self) -> tuple[int, ...]:
        """The strides of ``[..., tokens]``."""
        return (*self.strides[:-3], self.strides[-2])


class Operand(NamedTuple):
    """A tensor to turn and where its turned values go."""

    x: Meta
    out: Meta
    in_place: bool

    @staticmethod
    def of(x: Tensor, out: Tensor) -> Operand:
        """Read off tensors.

        Raises:
            Misfit: out overlaps x, and is not x itself.
        """
        before = Meta.of(x)
        if out is x:
            return Operand(before, before, True)
        after = Meta.of(out)
        if x.untyped_storage().data_ptr() != out.untyped_storage().data_ptr():
            return Operand(before, after, False)
        same = x.data_ptr() == out.data_ptr() and _alike(before, after)
        apart = same or not x.numel() or _end(x) <= out.data_ptr() or _end(out) <= x.data_ptr()
        check(apart, "out overlaps x and is not x itself; give it memory of its own")
        return Operand(before, after, same)


def _alike(x: Meta, out: Meta) -> bool:
    """Whether the strides are the same wherever they matter."""
    return x.shape == out.shape and all(
        a == b for a, b, n in zip(x.strides, out.strides, x.shape, strict=True) if n > 1
    )


def _end(x: Tensor) -> int:
    """The address behind the last element."""
    last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr() + (last + 1) * x.element_size()


class Lanes(NamedTuple):
    """Pair c is lanes ``first + c·step`` and ``second + c·step``; ``negative`` turns them back."""

    first: int
    second: int
    step: int
    negative: bool

    @staticmethod
    def of(number: int) -> Lanes:
        """The lanes of :class:`ropewalk.spectra.lanes.Turn`."""
        negative, first, second, step = spelt(number)
        return Lanes(first, second, step, negative)

    def passing(self, pairs: int, head_dim: int) -> int:
        """Lanes of the longest run that does not turn.

        Raises:
            Misfit: the pairs do not fit in head_dim.
        """
        neighbours = self.step == 2 and self.second == self.first + 1
        halves = self.step == 1 and self.second >= self.first + pairs
        behind = self.first + 2 * pairs if neighbours else self.second + pairs
        check(
            (neighbours or halves) and behind <= head_dim,
            f"{pairs} pairs of lanes at {self.first} and {self.second} in steps of {self.step} do "
            f"not fit in head_dim={head_dim}",
        )
        between = 0 if neighbours else self.second - self.first - pairs
        return max(self.first, between, head_dim - behind)
