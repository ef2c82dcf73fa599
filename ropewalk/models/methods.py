"""Rotations that models write out in a method of their own, and the same as one fused rotation.

Each is tried on a stand-in for its module: one whose results are those of a known writing is
replaced by it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ropewalk.models.applied import applied
from ropewalk.models.forms import Form

_HALF = Form("half", "both", dtype="promoted")
_PAIRS = Form("interleaved", "pairs", dtype="promoted")


def _flat_heads(self: Any, hidden_states: Tensor, relative_position_embeddings: Tensor) -> Tensor:
    """Heads side by side in ``[batch, tokens, width]``; cos and sin stacked, tokens first."""
    batch, tokens, width = hidden_states.shape
    cos, sin = relative_position_embeddings[:, :tokens, 0]
    x = hidden_states.view(batch, tokens, self.num_heads, self.head_size)
    (y,) = applied((x,), cos, sin, _HALF, "_apply_rotary_embedding")
    return y.reshape(batch, tokens, width)


def _sin_cos_side_by_side(
    sinusoidal_pos: Tensor,
    query_layer: Tensor,
    key_layer: Tensor,
    value_layer: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """q, k and perhaps v by one table that holds sin in its first half and cos in its second."""
    sin, cos = sinusoidal_pos.chunk(2, dim=-1)
    layers = tuple(x for x in (query_layer, key_layer, value_layer) if x is not None)
    return applied(layers, cos, sin, _PAIRS, "apply_rotary_position_embeddings")


@dataclass(frozen=True)
class Writing:
    """A known method: what does the same, in which form, and calls to compare the two by."""

    fused: Callable[..., Any]
    form: Form
    calls: Callable[[torch.dtype, torch.dtype], list[tuple[Any, ...]]]


def _normal(*shape: int, dtype: torch.dtype) -> Tensor:
    random = torch.Generator(device="cpu").manual_seed(sum(shape))
    return torch.randn(shape, generator=random, device="cpu").to(dtype)


def _flat_calls(x: torch.dtype, table: torch.dtype) -> list[tuple[Any, ...]]:
    module = SimpleNamespace(num_heads=2, head_size=8)
    return [
        (module, _normal(3, tokens, 16, dtype=x), _normal(2, 5, 1, 1, 8, dtype=table))
        for tokens in (5, 4)
    ]


def _side_calls(x: torch.dtype, table: torch.dtype) -> list[tuple[Any, ...]]:
    q, k, v = (_normal(3, 2, 5, 8, dtype=x) * n for n in (1, 2, 3))
    where = _normal(1, 1, 5, 8, dtype=table)
    return [(where, q, k), (where, q, k, v)]


_KNOWN = (
    Writing(_flat_heads, _HALF, _flat_calls),
    Writing(_sin_cos_side_by_side, _PAIRS, _side_calls),
)


@cache
def written_out(method: FunctionType) -> Writing | None:
    """The known writing whose results ``method`` gives, if any."""
    dtypes = ((torch.float32, torch.float32), (torch.bfloat16, torch.float32))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for writing in _KNOWN:
            calls = [call for pair in dtypes for call in writing.calls(*pair)]
            if all(_alike(method, writing.fused, call) for call in calls):
                return writing
    return None


def _alike(method: FunctionType, fused: Callable[..., Any], call: tuple[Any, ...]) -> bool:
    try:
        theirs, mine = method(*call), fused(*call)
    except (RuntimeError, IndexError, TypeError, ValueError, AttributeError):
        return False
    pairs = list(zip(*((r if isinstance(r, tuple) else (r,)) for r in (theirs, mine)), strict=True))
    return all(
        a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=0.02, atol=0.02)
        for a, b in pairs
    )
