"""Builders of integer positions for the usual ways of laying out tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ropewalk.positions.contract import check_range, mask_of
from ropewalk.spectra.arguments import FARTHEST, check_int, check_number, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    Device = torch.device | str | None


def _count(name: str, value: int) -> int:
    return check_int(name, value, at_least=0, at_most=FARTHEST)


def text(tokens: int, *, offset: int | Tensor = 0, device: Device = None) -> Tensor:
    """offset, offset+1, … for consecutive tokens.

    Args:
        tokens: how many, ≥ 0.
        offset: the first position, an int, or one int per batch row ``[batch]``.
        device: of the result.

    Returns:
        int64 ``[tokens]``, or ``[batch, tokens]``.
    """
    line = torch.arange(_count("tokens", tokens), device=device)
    if isinstance(offset, Tensor):
        if offset.dtype.is_floating_point or offset.dim() != 1:
            raise TypeError(
                f"offset has dtype {offset.dtype} and shape {tuple(offset.shape)}; "
                "use an int or an integer tensor [batch]"
            )
        return offset.to(line.device, torch.int64)[:, None] + line
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise TypeError(f"offset={offset!r} must be an int or an integer tensor [batch]")
    check_range(offset, tokens)
    return line + offset


def _boundaries(cu_seqlens: Tensor | Sequence[int]) -> Tensor:
    try:
        ends = torch.as_tensor(cu_seqlens)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"cu_seqlens is {type(cu_seqlens).__name__}, which is no list of integers such as "
            "[0, 5, 9]"
        ) from error
    if ends.numel() == 0:
        raise ValueError("cu_seqlens=[] must start at 0; no sequence at all is written [0]")
    if ends.dtype.is_floating_point or ends.dtype == torch.bool or ends.dim() != 1:
        raise TypeError(
            f"cu_seqlens has dtype {ends.dtype} and shape {tuple(ends.shape)}; it must be a "
            "one-dimensional list of integers such as [0, 5, 9]"
        )
    ends = ends.to(torch.int64)
    if len(ends) < 1 or ends[0] != 0 or bool((ends.diff() < 0).any()):
        raise ValueError(
            f"cu_seqlens={ends.tolist()} must start at 0 and never fall; lengths [5, 4] are "
            "written [0, 5, 9]"
        )
    return ends


def packed(cu_seqlens: Tensor | Sequence[int], tokens: int | None = None) -> Tensor:
    """Positions of sequences laid end to end, restarting at 0 in each.

    Args:
        cu_seqlens: cumulative lengths with a leading 0, ``[sequences + 1]``; lengths [5, 4] are
            ``[0, 5, 9]``.
        tokens: of the whole line, padding at its end included; ``cu_seqlens[-1]`` if None.

    Returns:
        int64 ``[tokens]``, 1 at padding (a valid row of every table).

    Raises:
        TypeError, ValueError: not integers, no leading 0, falling, or beyond tokens.
    """
    ends = _boundaries(cu_seqlens)
    lengths = ends.diff()
    starts = torch.repeat_interleave(ends[:-1], lengths)
    places = torch.arange(int(ends[-1]), device=ends.device) - starts
    return _padded(places, tokens, 1)


def segments(cu_seqlens: Tensor | Sequence[int], tokens: int | None = None) -> Tensor:
    """The index of the sequence that each packed token belongs to, for ``attend(segments=…)``.

    Arguments and errors as in :func:`packed`; returns int64 ``[tokens]``, −1 at padding.
    """
    lengths = _boundaries(cu_seqlens).diff()
    owners = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    return _padded(owners, tokens, -1)


def _padded(line: Tensor, tokens: int | None, value: int) -> Tensor:
    if tokens is None:
        return line
    if _count("tokens", tokens) < len(line):
        raise ValueError(
            f"tokens={tokens} is less than the {len(line)} tokens of cu_seqlens; it counts them "
            "and the padding after them"
        )
    return torch.cat((line, line.new_full((tokens - len(line),), value)))


def left_padded(mask: Tensor) -> Tensor:
    """Positions of left-padded (or otherwise masked) rows: real tokens count from 0.

    Args:
        mask: ``[batch, tokens]`` or ``[tokens]``, 1 or True at real tokens, 0 at padding.

    Returns:
        int64 of the shape of mask: ``cumsum(mask) − 1`` at real tokens, 1 at padding (a valid row
        of every table). Pass ``segments=ropewalk.positions.mask_segments(mask)`` to ``attend`` so
        that padding is neither read nor attends.

    Raises:
        TypeError, ValueError: mask is not boolean or integer 0/1.
    """
    real = mask_of("mask", mask)
    return torch.where(real, real.to(torch.int64).cumsum(-1) - 1, 1)


def mask_segments(mask: Tensor) -> Tensor:
    """Segment 0 at real tokens and −1 at padding, for ``attend(segments=…)``; shape of mask."""
    return mask_of("mask", mask).to(torch.int64) - 1


def grid(*sizes: int, device: Device = None) -> Tensor:
    """Positions of a grid, row by row: the last axis runs fastest.

    Args:
        sizes: height, width (or frames, height, width, or any number of axes), each ≥ 0.
        device: of the result.

    Returns:
        int64 ``[product of sizes, axes]``; column a is the coordinate along axis a.
    """
    if not sizes:
        raise ValueError("grid needs at least one size, such as grid(height, width)")
    if math.prod(_count("size", size) for size in sizes) > 1 << 40:
        raise ValueError(f"a grid of sizes {sizes} has more places than memory can hold")
    lines = [torch.arange(_count("size", size), device=device) for size in sizes]
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), dim=-1).reshape(-1, len(sizes))


def fixed(coordinates: Tensor, unit: float) -> Tensor:
    """Fractional coordinates (normalised image places, seconds) as integer positions.

    .. math:: p = \\mathrm{round}(x / \\text{unit})

    Use with a spectrum of the same ``unit``; the coordinate error is at most unit/2. A power of two
    such as 2**-20 makes the division exact.

    Args:
        coordinates: floating ``[...]``, finite.
        unit: size of one integer position, > 0.

    Returns:
        int64 of the same shape.

    Raises:
        TypeError, ValueError: not floating, not finite, unit ≤ 0, or |x/unit| ≥ 2⁵³ (float64 could
        not hold it exactly).
    """
    try:
        check_number("unit", unit, above=0)
    except (TypeError, ValueError):
        raise ValueError(
            f"unit={shown(unit)} must be a finite number above 0, such as 2**-20"
        ) from None
    if not isinstance(coordinates, Tensor) or not coordinates.dtype.is_floating_point:
        raise TypeError("coordinates must be a floating tensor; integers are positions already")
    scaled = coordinates.to(torch.float64) / unit
    if not bool(torch.isfinite(scaled).all()):
        raise ValueError("coordinates hold nan or inf; positions must be finite")
    if bool((scaled.abs() >= 2**53).any()):
        raise ValueError(f"a coordinate over unit={unit!r} passes 2**53; use a larger unit")
    return scaled.round().to(torch.int64)
