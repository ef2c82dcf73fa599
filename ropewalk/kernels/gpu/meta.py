"""What a launch depends on apart from values: the key under which all else is kept."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

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
        """Read off a tensor."""
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
        """Read off tensors."""
        before, after = Meta.of(x), Meta.of(out)
        same = x.data_ptr() == out.data_ptr() and before.strides == after.strides
        return Operand(before, after, same)


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
                f"{pairs} pairs of lanes with (first, second, step) = {tuple(self)} do not fit in "
                f"head_dim={head_dim}; step is 1 for halves, 2 for neighbours"
            )
        between = 0 if neighbours else self.second - self.first - pairs
        return max(self.first, between, head_dim - behind)
