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


def at_rows(scores: Tensor, rows: Tensor) -> Tensor:
    """The score of each query with the row that each key has, ``[..., H, q_tokens, kv_tokens]``.

    Args:
        scores: of each query with every row of a table, ``[..., H, q_tokens, rows]``.
        rows: int64, the row of each pair, ``[..., 1, q_tokens, kv_tokens]``.
    """
    return scores.gather(-1, rows.expand(*scores.shape[:-1], rows.shape[-1]))
