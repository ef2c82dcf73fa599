"""Amplitudes that grow with distance from a center: the positions a dtype holds, no others."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.core import Rotary
from ropewalk.kernels.opaque import opaque
from ropewalk.spectra.arguments import FARTHEST, check_int


def _like(positions: Tensor, center: int, limit: int, remedy: str) -> Tensor:
    return torch.empty_like(positions)


def _batched(op):
    def rule(info, in_dims, positions, center, limit, remedy):
        return op(positions, center, limit, remedy), in_dims[0]

    return rule


@opaque(
    "from_center(Tensor positions, int center, int limit, str remedy) -> Tensor",
    fake=_like,
    vmap=_batched,
)
def _from_center(positions: Tensor, center: int, limit: int, remedy: str) -> Tensor:
    """positions − center, once none is farther than ``limit``; in compiled code too."""
    away = positions - center
    if not away.numel() or away.is_meta:
        return away
    inside = (positions >= center - limit) & (positions <= center + limit)
    if away.device.type != "cpu":  # no wait for the device: it stops by itself
        torch.ops.aten._assert_async.msg(inside.all(), f"a position is out of range; {remedy}")
    elif not bool(inside.all()):
        outside = int(positions[~inside].reshape(-1)[0])
        raise ValueError(
            f"positions hold {outside}, farther than {limit} from center={center}; {remedy}"
        )
    return away


def farthest(rate: float, dtype: torch.dtype) -> int:
    """How far from the center e^(±rate · distance) stays a normal number of ``dtype``."""
    reach = -math.log(torch.finfo(dtype).smallest_normal)
    return math.floor(reach / rate) if rate * FARTHEST > reach else FARTHEST


def from_center(positions: Tensor, center: int, rate: float, dtype: torch.dtype) -> Tensor:
    """int64 positions − center.

    Args:
        positions: int64, any shape.
        center: where the amplitude is 1.
        rate: the amplitude at a distance is at most e^(rate · distance), and at least its inverse.
        dtype: of the values that carry it.

    Raises:
        ValueError: an amplitude leaves the normal numbers of ``dtype``, with the farthest distance.
    """
    name = str(dtype).removeprefix("torch.")
    remedy = (
        f"beyond that the amplitudes leave the range of {name}: use a wider dtype, a center nearer "
        "the middle of the text, or a slower growth"
    )
    return _from_center(positions, center, farthest(rate, dtype), remedy)


class Centred(Rotary):
    """q changes by what its place from a center says, and k by the inverse of its amplitude.

    A subclass gives ``head_dim``, :attr:`rate`, :meth:`signed` and :meth:`literal`.

    Args:
        center: the position whose amplitude is 1.

    Raises:
        TypeError, ValueError: center is no int64.
    """

    def __init__(self, center: int) -> None:
        super().__init__()
        self.center = check_int("center", center, at_least=-FARTHEST, at_most=FARTHEST)

    @property
    @abstractmethod
    def rate(self) -> float:
        """The natural logarithm by which the fastest amplitude changes a position."""

    @abstractmethod
    def signed(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None, sign: int
    ) -> Tensor:
        """x as q (sign 1), or as k (−1)."""

    @abstractmethod
    def literal(self, x: Sequence[float], position: int, sign: int) -> list[float]:
        """The same of one vector by a float64 loop."""

    @property
    def positions(self) -> int:
        """How many positions from 0 on bfloat16 and float32 serve."""
        return max(0, self.center + farthest(self.rate, torch.float32) + 1)

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` encoded.

        Raises:
            ValueError: a position is farther from the center than the dtype of q can hold.
        """
        return self.signed(q, positions, offset, 1)

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]`` encoded, with the inverse amplitude; may be cached.

        Raises:
            ValueError: a position is farther from the center than the dtype of k can hold.
        """
        return self.signed(k, positions, offset, -1)

    def reference(self, x: Sequence[float], position: int | Sequence[int]) -> list[float]:
        """One vector transformed as q by a literal float64 loop."""
        return self.literal(x, position if isinstance(position, int) else position[0], 1)

    def reference_k(self, x: Sequence[float], position: int | Sequence[int]) -> list[float]:
        """One vector transformed as k."""
        return self.literal(x, position if isinstance(position, int) else position[0], -1)
