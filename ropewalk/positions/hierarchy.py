"""Positions on two levels: a token's place in its unit, and the unit's place in the text."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.positions.builders import packed, segments


def two_levels(cu_seqlens: Tensor | Sequence[int]) -> Tensor:
    """(token in its unit, unit) of consecutive tokens, both from 0.

    Args:
        cu_seqlens: where units start, with a leading 0 and the number of tokens at the end,
            ``[units + 1]``: units of 3 and 2 tokens are ``[0, 3, 5]``.

    Returns:
        int64 ``[tokens, 2]``, for encodings with the two axes token and unit.

    Raises:
        TypeError, ValueError: not integers, no leading 0, or falling.

    Example:
        >>> two_levels([0, 3, 5]).tolist()
        [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1]]
    """
    return torch.stack((packed(cu_seqlens), segments(cu_seqlens)), dim=-1)


def two_levels_of(starts: Tensor) -> Tensor:
    """The same from a mark at the first token of every unit, which may lie in rows.

    Args:
        starts: boolean ``[..., tokens]``, True where a unit starts. The first token of a row
            starts one in any case.

    Returns:
        int64 ``[..., tokens, 2]``.

    Raises:
        TypeError: starts is not a boolean tensor with a token dimension.
    """
    if not isinstance(starts, Tensor) or starts.dtype != torch.bool or starts.dim() < 1:
        found = starts.dtype if isinstance(starts, Tensor) else type(starts).__name__
        raise TypeError(
            f"starts must be a boolean tensor [..., tokens] with True at first tokens, got {found}"
        )
    index = torch.arange(starts.shape[-1], device=starts.device)
    first = starts | (index == 0)
    unit = first.to(torch.int64).cumsum(-1) - 1
    since = torch.where(first, index, 0)
    start = since.cummax(-1).values if since.shape[-1] else since
    return torch.stack((index - start, unit), dim=-1)
