"""The position contract: which integer tensors count as positions of which tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from ropewalk.spectra.arguments import shown

_INTEGERS = {
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
}


def integer_positions(positions: Tensor, axes: int = 1, name: str = "positions") -> Tensor:
    """``positions`` as int64 with their axes checked; messages call them ``name``.

    Raises:
        TypeError: not an integer tensor.
        ValueError: with axes > 1, the last dimension is not the axes; or no token dimension.
    """
    if not isinstance(positions, Tensor):
        raise TypeError(
            f"{name} must be a tensor of integers, got {type(positions).__name__}; "
            f"write torch.tensor({name})"
        )
    if positions.dtype.is_floating_point or positions.dtype.is_complex:
        raise TypeError(
            f"{name} have dtype {positions.dtype}; they must be integers. For fractional "
            "coordinates use ropewalk.positions.fixed(x, unit) and a spectrum with that unit"
        )
    if positions.is_nested or positions.dtype not in _INTEGERS | {torch.bool}:
        kind = "a nested tensor" if positions.is_nested else positions.dtype
        raise TypeError(
            f"{name} must be a dense tensor of integers [tokens] or [batch, tokens], got {kind}; "
            "for packed sequences use ropewalk.positions.packed(offsets)"
        )
    if positions.dtype == torch.bool:
        raise TypeError(
            f"{name} have dtype torch.bool; for a padding mask use "
            "ropewalk.positions.left_padded(mask)"
        )
    if axes > 1 and (positions.dim() < 2 or positions.shape[-1] != axes):
        raise ValueError(
            f"{name} have shape {tuple(positions.shape)}; with axes={axes} the last dimension "
            f"must be {axes}: [tokens, {axes}] or [batch, tokens, {axes}]"
        )
    if positions.layout is not torch.strided:
        raise TypeError(f"{name} have layout {positions.layout}; use {name}.to_dense()")
    if positions.dim() < 1:
        raise ValueError(f"{name} must have a token dimension: [tokens] or [batch, tokens]")
    return positions.to(torch.int64)


def mask_of(name: str, mask: Tensor, *, floating: bool = False) -> Tensor:
    """``mask`` as booleans, True at real tokens; messages call it ``name``.

    Floats 0 and 1, which some tokenizers give, pass only where ``floating`` says so.

    Raises:
        TypeError: not a boolean or integer tensor with a token dimension.
        ValueError: integers other than 0 and 1.
    """
    real = isinstance(mask, Tensor) and not mask.dtype.is_complex and mask.dim() > 0
    if not real or (mask.dtype.is_floating_point and not floating):
        raise TypeError(
            f"{name} must be a boolean or integer tensor [batch, tokens] with 1 at real tokens, "
            "got " + (f"dtype {mask.dtype}" if isinstance(mask, Tensor) else type(mask).__name__)
        )
    if mask.dtype != torch.bool and bool(((mask != 0) & (mask != 1)).any()):
        raise ValueError(f"{name} has values other than 0 and 1; 1 marks a real token, 0 padding")
    return mask.to(torch.bool)


def require_listed(name: str, values: object, wanted: str) -> None:
    """Refuse what is no list, tuple or other iterable of items.

    Raises:
        TypeError: with what is ``wanted``.
    """
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{name}={shown(values)} must be a list, {wanted}")


def token_positions(
    positions: Tensor | None,
    offset: int | Tensor | None,
    x: Tensor,
    axes: int,
    token_dim: int = -2,
    *,
    name: str = "positions",
    of: str = "x",
) -> Tensor:
    """The int64 positions of the tokens of x, ``[tokens]`` or ``[batch, tokens]`` (``, axes``).

    ``None`` means 0 … T−1; ``offset`` (an int, or one int per batch row) is added to that.
    Messages call positions and x by ``name`` and ``of``.

    Raises:
        TypeError, ValueError: both are given, the dtype is not integer, or shapes do not match.
    """
    tokens = x.shape[token_dim]
    if positions is None:
        if axes > 1:
            raise ValueError(
                f"{name}=None is 0 … T−1 on one axis; this encoding has axes={axes}: pass "
                f"[tokens, {axes}], such as ropewalk.positions.grid(height, width)"
            )
        positions = torch.arange(tokens, device=x.device)
        if offset is None:
            return positions
        return _shifted(positions, offset)
    if offset is not None:
        raise ValueError(f"{name} and offset are both given; add the offset to {name}")
    positions = integer_positions(positions, axes, name)
    found = positions.shape[-1 if axes == 1 else -2]
    if found != tokens:
        raise ValueError(
            f"{name} have shape {tuple(positions.shape)}, that is {found} tokens; "
            f"{of} has shape {tuple(x.shape)} with {tokens} tokens"
        )
    return positions


def _shifted(positions: Tensor, offset: int | Tensor) -> Tensor:
    if isinstance(offset, Tensor):
        start = integer_positions(offset if offset.dim() else offset.reshape(1), name="offset")
        if start.dim() != 1:
            raise ValueError(f"offset has shape {tuple(offset.shape)}; use an int or [batch]")
        if start.device != positions.device:
            raise ValueError(
                f"offset is on {start.device}, tokens are on {positions.device}; move one of them"
            )
        return start[:, None] + positions if offset.dim() else positions + start
    if isinstance(offset, bool) or not isinstance(offset, (int, torch.SymInt)):
        raise TypeError(f"offset={offset!r} must be an int or an integer tensor [batch]")
    if isinstance(offset, int):
        check_range(offset, positions.shape[0])
    return positions + offset


def check_range(offset: int, tokens: int) -> None:
    """Refuse positions beyond int64, which would wrap.

    Raises:
        ValueError: offset … offset + tokens − 1 do not fit int64.
    """
    last = offset + tokens - 1 if isinstance(tokens, int) and tokens else offset
    if not -(2**63) <= offset <= last < 2**63:
        raise ValueError(
            f"offset={offset} does not fit int64 with {tokens} tokens: positions are 64-bit"
        )
