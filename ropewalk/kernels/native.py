"""The C++ kernel where it is built: loaded once, or the reason why it is not.

``ROPEWALK_KERNEL=reference`` leaves it unused.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ropewalk.kernels.build import places


@dataclass(frozen=True)
class Kernel:
    """What rotations run on: ``ops``, or None for plain PyTorch; ``name`` says which and why."""

    ops: Any
    name: str


def wanted() -> str:
    """What ``ROPEWALK_KERNEL`` asks for: cpu, reference, or "" for the best there is.

    Raises:
        ValueError: it is something else.
    """
    name = os.environ.get("ROPEWALK_KERNEL", "")
    if name not in ("", "cpu", "reference"):
        raise ValueError(f"ROPEWALK_KERNEL={name!r} is unknown; use cpu or reference")
    return name


@cache
def kernel() -> Kernel:
    """The CPU kernel of this process; looked for at the first rotation."""
    asked = wanted()
    if asked == "reference":
        return Kernel(None, "reference (PyTorch), as ROPEWALK_KERNEL asks")
    for path in places():
        if path.is_file():
            return _load(str(path), asked)
    if asked == "cpu":
        raise ValueError("ROPEWALK_KERNEL=cpu, and no kernel is built; run ropewalk build-kernel")
    return Kernel(None, "reference (PyTorch); `ropewalk build-kernel` builds the C++ one")


def _load(path: str, asked: str) -> Kernel:
    try:
        torch.ops.load_library(path)
        ops = torch.ops.ropewalk_cpu
        return Kernel(ops, f"cpu (C++, {ops.vector_bits()}-bit vectors)")
    except (OSError, RuntimeError, AttributeError) as error:
        if asked == "cpu":
            raise ValueError(f"the C++ kernel does not load: {error}") from error
        return Kernel(None, f"reference (PyTorch); the C++ kernel does not load: {error}")
