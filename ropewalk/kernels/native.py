"""Which kernel rotations run on: the C++ one where it is built, else PyTorch's own operations.

``ROPEWALK_KERNEL`` chooses: ``cpu`` (C++, or an error), ``pytorch``, or ``reference``, the plain
form that compilers trace.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ropewalk.kernels import eager
from ropewalk.kernels.build import places


class Operators:
    """What every kernel offers, each looked up once: a lookup costs a decode step dearly.

    ``lanes`` is the number of :class:`ropewalk.spectra.lanes.Turn`. Besides the C++ library's, the
    module :mod:`ropewalk.kernels.eager` is one.
    """

    def __init__(self, namespace: Any) -> None:
        for name in Operators.__annotations__:
            overload = getattr(namespace, name).default
            setattr(self, name, getattr(overload, "_op", overload))

    rotate: Callable[..., None]
    """(x, out, positions or None, offset, steps, scale, lanes): x turned into out."""
    rotate_qk: Callable[..., None]
    """(q, k, q_out, k_out, positions or None, offset, steps, scale, lanes)."""
    rotate_qk_: Callable[..., None]
    """(q, k, positions or None, offset, steps, scale, lanes), in place."""
    rotate_by: Callable[..., None]
    """(x, out, cos, sin, lanes)."""
    rotate_qk_by: Callable[..., None]
    """(q, k, q_out, k_out, cos, sin, lanes)."""
    phase_tables: Callable[..., None]
    """(positions, steps, scale, cos, sin): tables of these phases into cos and sin."""
    advise: Callable[[Tensor], None]
    """Ask for huge pages behind a large fresh tensor."""


@dataclass(frozen=True)
class Kernel:
    """What rotations on the CPU run on: its operators, and a name that says which and why.

    ``ops`` is None where the reference is asked for.
    """

    ops: Any
    name: str
    compiled: bool = False


_BUILD = "`ropewalk build-kernel` builds the C++ one"


@cache
def kernel() -> Kernel:
    """The kernel of this process; looked for at the first rotation."""
    wanted = os.environ.get("ROPEWALK_KERNEL", "")
    if wanted not in ("", "cpu", "pytorch", "reference"):
        raise ValueError(f"ROPEWALK_KERNEL={wanted!r} is unknown; use cpu, pytorch or reference")
    if wanted == "reference":
        return Kernel(None, "reference (PyTorch), as ROPEWALK_KERNEL asks")
    if wanted == "pytorch":
        return Kernel(eager, "PyTorch, as ROPEWALK_KERNEL asks")
    for path in places():
        if path.is_file():
            return _load(str(path), wanted)
    if wanted == "cpu":
        raise ValueError("ROPEWALK_KERNEL=cpu, and no kernel is built; run ropewalk build-kernel")
    return Kernel(eager, f"PyTorch; {_BUILD}")


def _load(path: str, wanted: str) -> Kernel:
    try:
        torch.ops.load_library(path)
        namespace = torch.ops.ropewalk_cpu
        name = f"cpu (C++, {namespace.vector_bits()}-bit vectors)"
        return Kernel(Operators(namespace), name, compiled=True)
    except (OSError, RuntimeError, AttributeError) as error:
        if wanted == "cpu":
            raise ValueError(f"the C++ kernel does not load: {error}") from error
        return Kernel(eager, f"PyTorch; the C++ kernel does not load: {error}")


def operators(x: Tensor) -> Any:
    """The operators for tensors where x is."""
    return kernel().ops if x.is_cpu else eager
