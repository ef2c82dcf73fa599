"""Which kernel rotations run on: the C++ one where it is built, else PyTorch's own operations.

``ROPEWALK_KERNEL`` decides otherwise: ``cpu`` insists on the C++ kernel, a path on the library
at that path, ``pytorch`` leaves the kernel unused, and ``reference`` takes the plain form that
compilers trace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ropewalk.kernels import direct, eager
from ropewalk.kernels.library import built, is_whole

_REMEDY = "`ropewalk build-kernel` builds it"


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
    direct: Any = None
    """``ops`` without PyTorch's dispatcher, where there are such."""
    into_pages: Callable[..., None] | None = None
    """(k, v, pages, v_pages, slots, positions, offset, steps, scale, lanes), where there is one."""
    normed: Callable[..., None] | None = None
    """(q, k or None, q_out, k_out or None, q_weight or None, k_weight or None, eps, positions or
    None, offset, steps, scale, lanes), where there is one."""


@cache
def kernel() -> Kernel:
    """The kernel of this process; looked for at the first rotation.

    Raises:
        ValueError: ``ROPEWALK_KERNEL`` is unknown, or asks for a library that does not load.
    """
    asked = wanted()
    if asked == "reference":
        return Kernel(None, "reference (PyTorch), as ROPEWALK_KERNEL asks")
    if asked == "pytorch":
        return Kernel(eager, "PyTorch, as ROPEWALK_KERNEL asks")
    if os.sep in asked:
        return _first_that_loads([Path(asked)], asked)
    return _first_that_loads(built(), asked)


def wanted() -> str:
    """What ``ROPEWALK_KERNEL`` asks for; "" for the best there is.

    Raises:
        ValueError: it is unknown.
    """
    name = os.environ.get("ROPEWALK_KERNEL", "")
    if name in ("", "cpu", "pytorch", "reference") or os.sep in name:
        return name
    raise ValueError(
        f"ROPEWALK_KERNEL={name!r} is unknown; use cpu, pytorch, reference or the path of a library"
    )


def _first_that_loads(paths: Iterable[Path], asked: str) -> Kernel:
    reasons = []
    for path in paths:
        try:
            if asked in ("", "cpu") and not is_whole(path):
                raise OSError(f"{path} is damaged: its content is not what its name says")
            torch.ops.load_library(str(path))
        except OSError as error:
            reasons.append(" ".join(str(error.__cause__ or error).split()))
        else:
            return _loaded(path)
    if not reasons and not asked:
        return Kernel(eager, "PyTorch; `ropewalk build-kernel` builds the C++ one")
    why = f"the C++ kernel does not load: {reasons[0]}" if reasons else "no C++ kernel is built"
    if asked:
        raise ValueError(f"ROPEWALK_KERNEL={asked}, but {why}; {_REMEDY}")
    return Kernel(eager, f"PyTorch; {why}; {_REMEDY}")


def _loaded(path: Path) -> Kernel:
    namespace = torch.ops.ropewalk_cpu
    if not hasattr(namespace, "vector_bits"):
        raise ValueError(f"{path} is a library, and not ropewalk's kernel")
    try:
        return operators_of(namespace, direct.functions(path))
    except OSError as error:
        kernel = operators_of(namespace)
        return replace(kernel, name=f"{kernel.name}; called as operators, since {error}")


def operators_of(
    namespace: Any, functions: Mapping[str, Callable[..., None]] | None = None
) -> Kernel:
    """The kernel of a library, which may be older than what is looked up last."""
    name = f"cpu (C++, {namespace.vector_bits()}-bit vectors)"
    into_pages, normed = (
        getattr(namespace, op).default._op if hasattr(namespace, op) else None
        for op in ("rotate_into_pages", "norm_rotate")
    )
    straight = None if functions is None else SimpleNamespace(**functions)
    return Kernel(Operators(namespace), name, True, straight, into_pages, normed)
