r"""The rotation in plain tensor arithmetic: the reference of the one rotary operation.

A positive angle turns (x₀, x₁) to (x₀·cos − x₁·sin, x₀·sin + x₁·cos). Only the phases are opaque to
autograd and compilers; the rest is PyTorch's own, and so is every derivative.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.kernels.lanes import join
from ropewalk.kernels.onnx import turn_for_onnx


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the arithmetic on values of ``dtype``: float64 for float64, else float32.

    Raises:
        TypeError: dtype is not a real floating dtype.
    """
    if dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise TypeError(
            f"x has dtype {dtype}; a rotation needs a real floating dtype: float32, "
            "bfloat16, float16 or float64"
        )
    return dtype if dtype == torch.float64 else torch.float32


def broadcast_tables(table: Tensor, x: Tensor, head_tables: bool = False) -> Tensor:
    """``table`` shaped so that it multiplies lanes of x ``[..., heads, tokens, lanes]``.

    ``[tokens, pairs]`` serves every head and batch row; ``[batch, tokens, pairs]`` gets a head
    dimension; with ``head_tables`` the third dimension from the end is KV heads already, each
    repeated over its group.

    Raises:
        ValueError: the sizes do not fit.
    """
    shape = broadcast_shape(table.shape, x, head_tables)
    if head_tables:
        return table.repeat_interleave(shape[-3] // table.shape[-3], dim=-3)
    return table.unsqueeze(-3) if table.dim() > 2 else table


def broadcast_shape(table: Sequence[int], x: Tensor, head_tables: bool) -> list[int]:
    """The shape that a table of shape ``table`` takes over x; see :func:`broadcast_tables`."""
    shape = list(table)
    if head_tables:
        heads, own = x.shape[-3] if x.dim() > 2 else 1, shape[-3]
        if heads % own:
            raise ValueError(f"x has {heads} heads, not a multiple of the spectrum's heads={own}")
        shape[-3] = heads
    elif len(shape) > 2:
        if x.dim() < 4:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; positions with a batch dimension need "
                "[batch, heads, tokens, head_dim]"
            )
        shape.insert(len(shape) - 2, 1)
    # Not ``t in (1, n)``: compilers find a symbolic 2 unequal to a plain one there.
    if len(shape) > x.dim() or any(
        t != 1 and t != n for t, n in zip(shape[::-1][1:], x.shape[::-1][1:], strict=False)
    ):
        raise ValueError(
            f"positions or tables of shape {tuple(shape)} do not broadcast over "
            f"x {tuple(x.shape)}; x is [..., heads, tokens, head_dim], positions are [tokens] "
            "or [batch, tokens]"
        )
    return shape


def turn(x: Tensor, cosine: Tensor, sine: Tensor, lanes: tuple[slice, slice]) -> Tensor:
    """x with every pair turned by broadcast tables; differentiable in all three tensors."""
    wide = compute_dtype(x.dtype)
    exported = turn_for_onnx(x, cosine, sine, lanes)
    if exported is not None:
        return exported
    first, second = x[..., lanes[0]].to(wide), x[..., lanes[1]].to(wide)
    cosine, sine = cosine.to(wide), sine.to(wide)
    return join(x, first * cosine - second * sine, first * sine + second * cosine, lanes)
