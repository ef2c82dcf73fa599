"""Positions that must lie in a table."""

from __future__ import annotations

import torch
from torch import Tensor


def require_inside(positions: Tensor, count: int, table: str, advice: str) -> None:
    """Refuse positions outside 0 … count − 1; on other devices than the CPU, stop the device.

    Raises:
        ValueError: with the first such position, what ``table`` serves, and the advice.
    """
    if not positions.numel() or positions.is_meta:
        return
    inside = (positions >= 0) & (positions < count)
    if positions.device.type != "cpu":  # no wait for the device: it stops by itself
        torch.ops.aten._assert_async.msg(inside.all(), f"a position is outside {table}")
    elif not bool(inside.all()):
        outside = int(positions[~inside].reshape(-1)[0])
        raise ValueError(
            f"positions hold {outside}, outside {table}, which serves 0 … {count - 1}{advice}"
        )
