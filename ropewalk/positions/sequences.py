"""Which tokens belong together: between masks, restarting positions, segments and cu_seqlens.

Segments are integers, equal for tokens of one sequence and −1 at padding, for
``attend(segments=…)``. ``cu_seqlens`` are cumulative lengths with a leading 0, as kernels for
packed sequences take them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def document_segments(mask: Tensor) -> Tensor:
    """Segments of a mask that numbers the sequences packed into a row: 1, 2, …; 0 is padding.

    Args:
        mask: integers ``[..., tokens]`` ≥ 0.

    Returns:
        int64 of the same shape, mask − 1.

    Raises:
        TypeError, ValueError: not integers, or below 0.
    """
    numbers = _integers("mask", mask)
    if bool((numbers < 0).any()):
        raise ValueError(
            f"mask has {int(numbers.min())}; sequences are numbered from 1, padding is 0"
        )
    return numbers - 1


def restart_segments(positions: Tensor) -> Tensor:
    """Segments of positions that restart: each token that does not continue the last opens one.

    Args:
        positions: integers ``[..., tokens]``, such as 0 1 2 0 1, rising by 1 within a sequence.

    Returns:
        int64 of the same shape, from 0 in every row.

    Raises:
        TypeError: not integers.
    """
    line = _integers("positions", positions)
    if line.shape[-1] == 0:
        return line
    opens = torch.zeros_like(line)
    opens[..., 1:] = line.diff(dim=-1) != 1
    return opens.cumsum(-1)


def boundaries(segments: Tensor) -> Tensor:
    """``cu_seqlens`` of the real tokens, row after row, padding taken out.

    Args:
        segments: integers ``[tokens]`` or ``[batch, tokens]``; below 0 at padding. A segment's
            tokens stand side by side.

    Returns:
        int64 ``[sequences + 1]``, 0 first; a sequence ends where the segment changes or a row ends.

    Raises:
        TypeError, ValueError: not integers; of another shape; a segment that comes back after
            another.
    """
    rows = _integers("segments", segments)
    if rows.dim() not in (1, 2):
        raise ValueError(
            f"segments have shape {tuple(rows.shape)}; use [tokens] or [batch, tokens]"
        )
    lengths = [torch.zeros(1, dtype=torch.int64, device=rows.device)]
    for row in rows[None] if rows.dim() == 1 else rows:
        names, counts = torch.unique_consecutive(row[row >= 0], return_counts=True)
        if len(names.unique()) < len(names):
            raise ValueError(
                f"segments run {names.tolist()}: one comes back after another; sort the tokens so "
                "that each segment stands together"
            )
        lengths.append(counts)
    return torch.cat(lengths).cumsum(0)


def _integers(name: str, values: Tensor) -> Tensor:
    if not isinstance(values, Tensor) or values.dtype.is_floating_point or values.dim() < 1:
        found = f"dtype {values.dtype}" if isinstance(values, Tensor) else type(values).__name__
        raise TypeError(f"{name} must be an integer tensor [..., tokens], got {found}")
    return values.to(torch.int64)
