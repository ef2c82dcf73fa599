"""Amplitudes that grow with position: which positions a dtype holds, and a refusal of others."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.kernels.opaque import opaque
from ropewalk.spectra.arguments import FARTHEST


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
