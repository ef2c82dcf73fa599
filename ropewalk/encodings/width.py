"""Widths, counts and dtypes of encodings, checked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ropewalk.spectra.arguments import LARGEST, WIDEST, check_number, shown


def check_dim(dim: int, name: str = "dim", at_most: int = WIDEST) -> int:
    """``dim`` if it is an int from 1 to ``at_most``.

    Raises:
        TypeError: not an int.
        ValueError: out of range.
    """
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TypeError(f"{name}={shown(dim)} must be an int, got {type(dim).__name__}")
    if dim < 1:
        raise ValueError(f"{name}={shown(dim)} must be at least 1")
    if dim > at_most:
        raise ValueError(f"{name}={shown(dim)} must be at most {at_most}")
    return dim


def check_floating(dtype: torch.dtype) -> torch.dtype:
    """``dtype`` if codes can be given in it.

    Raises:
        TypeError: not a real floating dtype.
    """
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(
            f"dtype={shown(dtype)} must be a real floating dtype, such as torch.float32"
        )
    return dtype


def check_std(std: float, *, at_least: float | None = None) -> float:
    """``std`` if normal numbers of that deviation stay in the range of float32.

    Raises:
        TypeError: not a number.
        ValueError: out of range; above 0 unless ``at_least`` is given.
    """
    above = 0 if at_least is None else None
    return check_number("std", std, above=above, at_least=at_least, at_most=LARGEST)


def check_place(device: torch.device | str | None, dtype: torch.dtype | None) -> None:
    """Refuse what is no device, and what parameters cannot be held in.

    Raises:
        TypeError: device is none, or dtype not real floating.
        ValueError: PyTorch has no such device here.
    """
    if dtype is not None:
        check_floating(dtype)
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device, type(None))):
        raise TypeError(f"device={shown(device)} must be a torch.device or its name, such as 'cpu'")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise ValueError(
            f"device={shown(device)} is no device that PyTorch has here: {first}"
        ) from error


def empty_parameter(
    shape: Sequence[int],
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Parameter:
    """A parameter with no values yet.

    Raises:
        TypeError: device is none, or dtype not real floating.
        ValueError: there is no such device here, or it cannot hold the parameter.
    """
    check_place(device, dtype)
    try:
        return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
    except (RuntimeError, MemoryError, AssertionError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise ValueError(
            f"a parameter of shape {'×'.join(map(str, shape))} cannot be held on "
            f"device={shown(device)}: {first}"
        ) from error
