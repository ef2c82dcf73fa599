"""The C++ kernel where it is built: loaded once, or the reason why it is not.

``ROPEWALK_KERNEL`` decides otherwise: ``reference`` leaves the kernel unused, ``cpu`` insists on
it, and a path insists on the library at that path.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ropewalk.kernels.library import built, is_whole

_REMEDY = "`ropewalk build-kernel` builds it"


@dataclass(frozen=True)
class Kernel:
    """What rotations run on: ``ops`` of the C++ library, or None; ``name`` says which and why."""

    ops: Any
    name: str


@cache
def kernel() -> Kernel:
    """The kernel of this process; looked for at the first rotation.

    Raises:
        ValueError: ``ROPEWALK_KERNEL`` is unknown, or asks for a library that does not load.
    """
    wanted = os.environ.get("ROPEWALK_KERNEL", "")
    if wanted == "reference":
        return Kernel(None, "reference (PyTorch), as ROPEWALK_KERNEL asks")
    if wanted in ("", "cpu"):
        return _first_that_loads(built(), wanted)
    if os.sep in wanted:
        return _first_that_loads([Path(wanted)], wanted)
    raise ValueError(
        f"ROPEWALK_KERNEL={wanted!r} is unknown; use cpu, reference or the path of a library"
    )


def _first_that_loads(paths: Iterable[Path], wanted: str) -> Kernel:
    reasons = []
    for path in paths:
        try:
            if wanted in ("", "cpu") and not is_whole(path):
                raise OSError(f"{path} is damaged: its content is not what its name says")
            torch.ops.load_library(str(path))
        except OSError as error:
            reasons.append(" ".join(str(error.__cause__ or error).split()))
        else:
            return _loaded(path)
    if not reasons and not wanted:
        return Kernel(None, "reference (PyTorch); `ropewalk build-kernel` builds the C++ one")
    why = f"the C++ kernel does not load: {reasons[0]}" if reasons else "no C++ kernel is built"
    if wanted:
        raise ValueError(f"ROPEWALK_KERNEL={wanted}, but {why}; {_REMEDY}")
    return Kernel(None, f"reference (PyTorch); {why}; {_REMEDY}")


def _loaded(path: Path) -> Kernel:
    ops = torch.ops.ropewalk_cpu
    if not hasattr(ops, "vector_bits"):
        raise ValueError(f"{path} is a library, and not ropewalk's kernel")
    return Kernel(ops, f"cpu (C++, {ops.vector_bits()}-bit vectors)")
