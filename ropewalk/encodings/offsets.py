"""Offsets of queries from keys, which is all that a relative bias reads."""

from __future__ import annotations

from torch import Tensor

from ropewalk.positions.contract import integer_positions


def offsets(q_positions: Tensor, kv_positions: Tensor) -> Tensor:
    """i − j in int64: ``[..., 1, q_tokens, kv_tokens]``, with room for heads.

    Raises:
        TypeError, ValueError: positions are not integers, or have no token dimension.
    """
    q = integer_positions(q_positions, name="q_positions")
    k = integer_positions(kv_positions, name="kv_positions")
    return (q[..., :, None] - k[..., None, :]).unsqueeze(-3)
