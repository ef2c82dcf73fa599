"""Which lanes of a head form the two halves of each pair."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.spectra import LAYOUTS, PAIRINGS


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


def join(x: Tensor, first: Tensor, second: Tensor, lanes: tuple[slice, slice]) -> Tensor:
    """x with the lanes of the pairs replaced, in the dtype of x; x itself is not written."""
    if x.dtype == torch.float16 and x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):  # it refuses to join float16
            return join(x, first, second, lanes)
    a, b = lanes
    first, second = first.to(x.dtype), second.to(x.dtype)
    if a.step == 2:
        turned = torch.stack((first, second), dim=-1)
        turned = turned.reshape(*turned.shape[:-2], -1) if turned.numel() else turned.flatten(-2)
        parts = [x[..., : a.start], turned, x[..., b.stop :]]
    else:
        between = x[..., a.stop : b.start]
        parts = [x[..., : a.start], first, between, second, x[..., b.stop :]]
    return torch.cat([part for part in parts if part.shape[-1]], dim=-1)
