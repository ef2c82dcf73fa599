"""Arithmetic in the dtype it is written in, whatever autocast says."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

_AUTOCAST = frozenset({"cpu", "cuda", "xpu"})
"""Devices that have autocast; Dynamo of torch 2.10 cannot trace the question."""


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Autocast off for the device of x; it would round products and sums to a half."""
    kind = x.device.type
    available = kind in _AUTOCAST or torch.amp.is_autocast_available(kind)
    return torch.autocast(kind, enabled=False) if available else nullcontext()
