"""Rotation by a compiled kernel: which tensors it takes as they are.

The kernel reads each value once and writes it once. :func:`one` and :func:`two` hand tensors to it
with as little Python as possible, since a decode step is all overhead; the operators check shapes,
dtypes and devices. What they do not take is left untouched for the careful way in
:mod:`ropewalk.kernels.rotate`, which converts, refuses in words, or differentiates. Compilers never
come here: they trace the plain form in :mod:`ropewalk.kernels.plain`, whose tables come from the
same code, so both agree bit for bit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, is_grad_enabled
from torch._C import (
    DispatchKey,
    _dispatch_tls_is_dispatch_key_included,
    _increment_version,  # pyright: ignore[reportAttributeAccessIssue]
    _is_tracing,
)
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from ropewalk.kernels.devices import direct, operators
from ropewalk.kernels.native import Operators
from ropewalk.kernels.steps import Steps
from ropewalk.spectra import Spectrum

MOST_DIMS = 8
"""Dimensions that the kernel takes."""
_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.float64})
_HUGE = 4 << 20
"""Bytes from which a fresh result is worth huge pages."""
_PYTHON = DispatchKey.Python  # included by every dispatch mode, also one before dispatch
_FIRST, _LAST = -(2**63), 2**63 - 1


# --- which tensors ------------------------------------------------------------------------------


def eager() -> bool:
    """Whether operations run as they are written: nothing traces, transforms or intercepts them."""
    return not (
        is_compiling()
        or peek_interpreter_stack() is not None
        or _is_tracing()
        or _dispatch_tls_is_dispatch_key_included(_PYTHON)
    )


def transformed() -> bool:
    """Whether a ``torch.func`` transform (vmap, grad, jvp …) is at work."""
    return peek_interpreter_stack() is not None


def forward_mode() -> bool:
    """Whether forward-mode derivatives are being taken."""
    return forward_ad._current_level >= 0


def needs_derivative(x: Tensor) -> bool:
    """Whether autograd watches x, in reverse or forward mode."""
    return (x.requires_grad and is_grad_enabled()) or forward_mode()


def ops_for(x: Tensor) -> Operators | None:
    """The kernel's operators if it can take x, else None: another device, dtype or tensor class."""
    if not eager() or type(x) not in (Tensor, torch.nn.Parameter) or x.dtype not in _DTYPES:
        return None
    if x.layout is not torch.strided or x.is_meta or x.is_neg():
        return None
    return operators(x)


def _ops(*given: object) -> Operators | None:
    """The operators for plain tensors that no derivative is wanted of: nobody needs to see them."""
    if not eager() or forward_ad._current_level >= 0:
        return None
    watched = False
    for x in given:
        if type(x) is not Tensor or x.is_neg():
            return None
        watched = watched or x.requires_grad
    x = cast(Tensor, given[0])
    return None if x.is_meta or (watched and is_grad_enabled()) else direct(x)


# --- handing over -------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _known(
    spectrum: Spectrum, device: torch.device, inverse: bool
) -> tuple[Tensor, float, int, int]:
    """What a spectrum is to the kernel (steps, scale, lanes), and the head_dim that it turns."""
    scale, lanes = spectrum.turns[inverse]
    with torch.inference_mode(False):
        return Steps.of(spectrum, device).tensor, scale, lanes, spectrum.head_dim


def rotation(
    x: Tensor, positions: Any, offset: object, spectrum: Any, inverse: object
) -> tuple[Tensor | None, int, Tensor, float, int] | None:
    """What the kernel wants to know beside tensors, or None where it needs converting first."""
    if type(inverse) is not bool:
        return None
    if type(spectrum) is Spectrum:
        steps, scale, lanes, head_dim = _known(spectrum, x.device, inverse)
    elif type(spectrum) is Steps and type(spectrum.tensor) is Tensor:
        steps, spectrum = spectrum.tensor, spectrum.spectrum
        scale, lanes = spectrum.turns[inverse]
        head_dim = spectrum.head_dim
        if steps.is_neg() or steps.shape[-1:] != (spectrum.pairs,):
            return None
    else:
        return None
    shape = x.shape
    if len(shape) < 2 or shape[-1] != head_dim:
        return None
    if positions is None:
        start = 0 if offset is None else offset
        if type(start) is not int or not _FIRST <= start <= _LAST - shape[-2]:
            return None
        return None, start, steps, scale, lanes
    if offset is not None or type(positions) is not Tensor or positions.is_neg():
        return None
    return positions, 0, steps, scale, lanes


def one(
    x: Tensor,
    positions: Tensor | None,
    spectrum: object,
    inverse: bool,
    offset: object,
    out: Tensor | None,
) -> Tensor | None:
    """x turned into ``out`` or a fresh tensor; None, and nothing written, if not possible as is."""
    ops = _ops(x) if out is None else _ops(x, out)
    if ops is None:
        return None
    try:
        how = rotation(x, positions, offset, spectrum, inverse)
        if how is None:
            return None
        result = fresh(ops, x) if out is None else out
        ops.rotate(x, result, *how)
    except RuntimeError:
        return None
    return result if out is None else written(out)


def two(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    spectrum: object,
    inverse: bool,
    offset: object,
    in_place: bool,
) -> tuple[Tensor, Tensor] | None:
    """:func:`one` for q and k in one pass: sin and cos are computed once for both."""
    ops = _ops(q, k)
    if ops is None:
        return None
    try:
        how = rotation(q, positions, offset, spectrum, inverse)
        if how is None:
            return None
        if in_place:
            ops.rotate_qk_(q, k, *how)
            written(q, k)
            return q, k
        result = fresh(ops, q), fresh(ops, k)
        ops.rotate_qk(q, k, *result, *how)
    except RuntimeError:
        return None
    return result


def one_by(x: Tensor, cos: Tensor, sin: Tensor, lanes: int, out: Tensor | None) -> Tensor | None:
    """:func:`one` by given tables."""
    ops = _ops(x, cos, sin) if out is None else _ops(x, cos, sin, out)
    if ops is None:
        return None
    try:
        result = fresh(ops, x) if out is None else out
        ops.rotate_by(x, result, cos, sin, lanes)
    except RuntimeError:
        return None
    return result if out is None else written(out)


def two_by(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, lanes: int
) -> tuple[Tensor, Tensor] | None:
    """:func:`two` by given tables."""
    ops = _ops(q, k, cos, sin)
    if ops is None:
        return None
    try:
        result = fresh(ops, q), fresh(ops, k)
        ops.rotate_qk_by(q, k, *result, cos, sin, lanes)
    except RuntimeError:
        return None
    return result


def fresh(ops: Operators, x: Tensor) -> Tensor:
    """An empty result for x; a large one asks for huge pages."""
    out = torch.empty_like(x)
    if out.nbytes >= _HUGE:
        ops.advise(out)
    return out


def written(out: Tensor, *more: Tensor) -> Tensor:
    """out, its change and that of the others noted for autograd."""
    _increment_version((out, *more))
    return out
