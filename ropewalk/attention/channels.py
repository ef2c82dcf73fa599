r"""Biases that factor become extra channels of q and k, and need no mask.

.. math:: s\,\langle q, k\rangle + \sum_c a_c b_c = s\,\bigl\langle [q, a/s], [k, b]\bigr\rangle

Each number is split into parts of the dtype of q, largest first, and a product of two numbers is
the sum of the products of their parts; what is left out is 2^−24 of it or less, so bfloat16
channels are as good as float32 ones. Kernels multiply the parts exactly and add in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk.core import Factors

PARTS = {torch.float64: 1, torch.float32: 1, torch.float16: 3, torch.bfloat16: 3}
"""Parts of a dtype that hold 24 bits or all it has."""
MULTIPLE = 8
"""Kernels for GPUs want head_dim in steps of this."""


def widened(
    q: Tensor, k: Tensor, factors: Factors, scale: float, value_dim: int
) -> tuple[Tensor, Tensor]:
    """q and k with the channels of a bias, as wide as values of ``value_dim`` can be padded to.

    Args:
        q: ``[..., heads, q_tokens, head_dim]``.
        k: ``[..., heads or kv_heads, kv_tokens, head_dim]``.
        factors: of these queries and keys.
        scale: by which the kernel multiplies ⟨q, k⟩; not 0.
        value_dim: width of v.
    """
    parts = PARTS[q.dtype]
    left, right = _split(factors.q / scale, q.dtype, parts), _split(factors.k, q.dtype, parts)
    pairs = [(a, b) for a in range(parts) for b in range(parts) if a + b < parts]
    width = width_of(q.shape[-1], factors.q.shape[-1], q.dtype, value_dim)
    return (
        _appended(q, [left[a] for a, _ in pairs], width),
        _appended(k, [right[b] for _, b in pairs], width),
    )


def width_of(head_dim: int, channels: int, dtype: torch.dtype, value_dim: int) -> int:
    """The common head_dim of q, k and v with the channels of a bias."""
    parts = PARTS[dtype]
    width = max(head_dim + channels * parts * (parts + 1) // 2, value_dim)
    return -(-width // MULTIPLE) * MULTIPLE


def padded(x: Tensor, width: int) -> Tensor:
    """x with zeros up to a last dimension of ``width``."""
    return x if x.shape[-1] == width else functional.pad(x, (0, width - x.shape[-1]))


def _split(x: Tensor, dtype: torch.dtype, parts: int) -> list[Tensor]:
    """Numbers of ``dtype`` that add up to x, the largest first."""
    found = []
    for _ in range(parts):
        found.append(x.to(dtype))
        x = x - found[-1].to(x.dtype)
    return found


def _appended(x: Tensor, more: list[Tensor], width: int) -> Tensor:
    lead = x.shape[:-1]
    wide = [x, *(part.expand(*lead, part.shape[-1]) for part in more)]
    missing = width - sum(part.shape[-1] for part in wide)
    if missing:
        wide.append(x.new_zeros(*lead, missing))
    return torch.cat(wide, dim=-1)
