"""The lanes of a head put together again after their pairs have turned."""

from __future__ import annotations

import torch
from torch import Tensor


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
