"""Checks of what a norm takes beside x: each refuses by name, with the remedy."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from ropewalk.kernels.kinds import require_dense


def require_eps(eps: object) -> None:
    """Refuse what cannot be added to a mean square."""
    if isinstance(eps, bool) or not isinstance(eps, Real):
        raise TypeError(f"eps={eps!r} must be a number, such as 1e-6")
    # The largest float64: that of sys.float_info compilers would make a number that changes.
    largest = 1.7976931348623157e308
    if not 0.0 <= eps <= largest:  # pyright: ignore[reportOperatorIssue]
        raise ValueError(f"eps={eps!r} must be finite and at least 0, such as 1e-6")


def require_weight(weight: object, x: Tensor) -> None:
    """Refuse a weight that does not multiply the rows of x."""
    if weight is None:
        return
    if not isinstance(weight, Tensor):
        raise TypeError(
            f"weight must be a tensor [head_dim], or None for ones, got {type(weight).__name__}"
        )
    require_dense("weight", weight)
    if weight.dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise TypeError(
            f"weight has dtype {weight.dtype}; it must be float32, bfloat16, float16 or float64"
        )
    if x.dim() < 2 or weight.shape != x.shape[-1:]:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}, and x {tuple(x.shape)}; a norm over head_dim "
            "has one weight for each lane, [head_dim], alike in every head"
        )
    if weight.device != x.device:
        raise ValueError(f"weight is on {weight.device}, x on {x.device}; move one of them")
