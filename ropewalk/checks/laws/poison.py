"""Poisoned memory: what was never written reads as NaN, so that reading it is seen.

Fresh memory is often zero by luck, which hides code that reads before it writes: a buffer after
``to_empty``, a lane that no branch fills. The idea is that of flash-linear-attention's tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

GARBAGE = 0x5A
"""The byte that fills integer memory: 0x5A5A…, huge in int64 and like no index or step."""

_ALLOCATORS: tuple[tuple[Any, str], ...] = (
    (torch, "empty"),
    (torch, "empty_like"),
    (torch, "empty_strided"),
    (torch.Tensor, "new_empty"),
    (torch.Tensor, "new_empty_strided"),
)


def poison(memory: Tensor) -> Tensor:
    """``memory`` filled with NaN, or with a huge garbage value if it holds integers."""
    if memory.is_meta or memory.dtype == torch.bool:
        return memory
    with torch.no_grad():
        if memory.dtype.is_floating_point or memory.dtype.is_complex:
            return memory.fill_(float("nan"))
        value = int.from_bytes(bytes([GARBAGE]) * memory.element_size(), "little")
        return memory.fill_(value)


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Within the context, memory that PyTorch hands out uninitialised to Python is poisoned.

    Example:
        >>> with poisoned_memory():
        ...     module = Mine(64).to_empty(device="cpu")
    """

    def poisoning(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(allocate)
        def allocated(*args: Any, **kwargs: Any) -> Tensor:
            return poison(allocate(*args, **kwargs))

        return allocated

    with torch.device("cpu"):
        torch.empty(0)  # PyTorch notes its constructors at the first such use: it must see its own
    patched = []
    try:
        for owner, name in _ALLOCATORS:
            own = vars(owner).get(name)  # None where the class inherits it
            patched.append((owner, name, own))
            setattr(owner, name, poisoning(getattr(owner, name)))
        yield
    finally:
        for owner, name, own in patched:
            delattr(owner, name) if own is None else setattr(owner, name, own)
