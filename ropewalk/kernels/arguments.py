"""What every rotation asks of its arguments, refused in words."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.kernels.kinds import require_dense
from ropewalk.kernels.memory import expanded


def require_tensor(x: object, name: str = "x") -> None:
    """Refuse what is not a tensor, or not one strided block of memory.

    Raises:
        TypeError: it is none, or nested, sparse or masked.
    """
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name} must be a tensor [..., heads, tokens, head_dim], got {type(x).__name__}"
        )
    require_dense(name, x)


def require_bool(inverse: object) -> None:
    """Refuse an ``inverse`` that is neither True nor False.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(inverse, bool):
        raise TypeError(f"inverse={inverse!r} must be True or False")


def check_out(x: Tensor, out: Tensor, *tables: Tensor) -> None:
    """Refuse an ``out`` that cannot take the result.

    Raises:
        TypeError: not a tensor.
        ValueError: another shape, dtype or device, expanded, or a gradient is wanted.
    """
    if not isinstance(out, Tensor):
        raise TypeError(f"out must be a tensor, got {type(out).__name__}")
    require_dense("out", out)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, out, *tables)):
        raise ValueError("out= has no gradient; call without out=, or under torch.no_grad()")
    if out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
        raise ValueError(
            f"out has shape {tuple(out.shape)}, {out.dtype} on {out.device}; "
            f"x needs {tuple(x.shape)}, {x.dtype} on {x.device}"
        )
    require_own_memory("out", out)


def require_own_memory(name: str, x: Tensor) -> None:
    """Refuse to write a tensor in which several places share one memory.

    Raises:
        ValueError: it is expanded.
    """
    if expanded(x):
        raise ValueError(
            f"{name} of shape {tuple(x.shape)} is expanded: several places share one memory, so it "
            "cannot be written; use .contiguous()"
        )


def require_as_many_tokens(q: Tensor, k: Tensor) -> None:
    """Refuse q and k that no positions can serve both, as of one decoded token and a cache.

    Raises:
        ValueError: they differ in tokens.
    """
    if q.shape[-2] != k.shape[-2]:
        raise ValueError(
            f"q has shape {tuple(q.shape)}, that is {q.shape[-2]} tokens, and k has shape "
            f"{tuple(k.shape)}, that is {k.shape[-2]}; in one call both lie at the same "
            "positions. Rotate each apart: rotate(q, None, spectrum, offset=…) with the position "
            "of its first token, or rotate(q, positions, spectrum)"
        )


def require_starts(offset: object, x: Tensor, name: str = "x") -> None:
    """Refuse first positions ``[batch]`` that are not one for each batch row of x.

    Raises:
        ValueError: another number of them, or x has no batch dimension.
    """
    if not isinstance(offset, Tensor) or not offset.dim():
        return
    given = f"offset has shape {tuple(offset.shape)}, a first position for each batch row"
    if x.dim() < 4:
        raise ValueError(
            f"{given}, and {name} of shape {tuple(x.shape)} has no batch dimension; use an int, or "
            f"{name} [batch, heads, tokens, head_dim]"
        )
    rows, found = x.shape[-4], offset.shape[0]
    if found != 1 and found != rows:
        raise ValueError(
            f"{given}, that is {found}; {name} of shape {tuple(x.shape)} has {rows} batch rows"
        )


def require_changeable(x: Tensor, name: str = "x") -> None:
    """Refuse an x that cannot be changed in place, as PyTorch's own operations do.

    Raises:
        ValueError: x is a leaf that requires grad, or expanded.
    """
    if torch.is_grad_enabled() and x.requires_grad and x.is_leaf:
        raise ValueError(
            f"{name} is a leaf that requires grad, which cannot be changed in place; use the form "
            "without the underscore, or torch.no_grad()"
        )
    if expanded(x):
        raise ValueError(
            f"{name} of shape {tuple(x.shape)} is expanded: several places share one memory, so it "
            "cannot be changed in place; use the form without the underscore, such as rotate"
        )
