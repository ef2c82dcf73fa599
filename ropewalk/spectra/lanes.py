"""Which lanes of a head form pairs, and how they turn."""

from __future__ import annotations

from typing import Literal, NamedTuple

Layout = Literal["half", "interleaved"]
Pairing = Literal["standard", "proportional"]
LAYOUTS: tuple[Layout, ...] = ("half", "interleaved")
PAIRINGS: tuple[Pairing, ...] = ("standard", "proportional")
_LANE = 2**30 - 1


def pair_slices(
    head_dim: int, pairs: int, layout: str, lane_offset: int, pairing: str
) -> tuple[slice, slice]:
    """Slices of the first and second lane of every pair.

    Raises:
        ValueError: unknown layout or pairing, or the lanes do not fit in head_dim.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r} is unknown; use one of {LAYOUTS}")
    if pairing not in PAIRINGS:
        raise ValueError(f"pairing={pairing!r} is unknown; use one of {PAIRINGS}")
    distance = head_dim // 2 if pairing == "proportional" else pairs
    if pairing == "proportional" and (
        layout != "half" or head_dim % 2 or lane_offset + pairs > distance
    ):
        raise ValueError(
            f"pairing='proportional' needs layout='half' and its {pairs} pairs at lane_offset="
            f"{lane_offset} in the first half of an even head_dim, got {layout=}, {head_dim=}"
        )
    end = lane_offset + (pairs + distance if layout == "half" else 2 * pairs)
    if lane_offset < 0 or end > head_dim:
        raise ValueError(
            f"{2 * pairs} rotated lanes at lane_offset={lane_offset} do not fit in "
            f"head_dim={head_dim}"
        )
    if layout == "interleaved":
        return slice(lane_offset, end, 2), slice(lane_offset + 1, end, 2)
    return (
        slice(lane_offset, lane_offset + pairs),
        slice(lane_offset + distance, lane_offset + distance + pairs),
    )


class Turn(NamedTuple):
    """How lanes turn, as kernels are told: cos and sin are multiplied by ``scale``.

    ``lanes`` is one number, because each argument costs a decode step. Its bits: 0 the angle's
    sign, 1 neighbouring lanes, from 2 the first lane, from 32 the second, 62 whether given tables
    hold each angle twice, as the lanes lie.
    """

    scale: float
    lanes: int

    def adjoint(self) -> Turn:
        """The transpose: the opposite angle, the same scale."""
        return Turn(self.scale, self.lanes ^ 1)

    @property
    def negative(self) -> bool:
        """Whether lanes turn by the negative angle."""
        return bool(self.lanes & 1)


def number(lanes: tuple[slice, slice], negative: bool = False, twice: bool = False) -> int:
    """``lanes`` as one number; see :class:`Turn`."""
    first, second = lanes
    return negative | (first.step == 2) << 1 | first.start << 2 | second.start << 32 | twice << 62


def slices(lanes: int, pairs: int) -> tuple[slice, slice]:
    """The slices of ``pairs`` pairs that a number stands for."""
    step = 2 if lanes & 2 else None
    first, second = lanes >> 2 & _LANE, lanes >> 32 & _LANE
    span = pairs * (step or 1)
    return slice(first, first + span, step), slice(second, second + span - (step == 2), step)


def spelt(lanes: int) -> tuple[bool, int, int, int]:
    """What a number stands for: negative, the first lane, the second, the step between pairs."""
    return bool(lanes & 1), lanes >> 2 & _LANE, lanes >> 32 & _LANE, 2 if lanes & 2 else 1
