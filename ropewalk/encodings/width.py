"""Widths, counts and dtypes of encodings, checked."""

from __future__ import annotations

import torch

from ropewalk.spectra.arguments import WIDEST


def check_dim(dim: int, name: str = "dim", at_most: int = WIDEST) -> int:
    """``dim`` if it is an int from 1 to ``at_most``.

    Raises:
        TypeError: not an int.
        ValueError: out of range.
    """
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TypeError(f"{name}={dim!r} must be an int, got {type(dim).__name__}")
    if dim < 1:
        raise ValueError(f"{name}={dim} must be at least 1")
    if dim > at_most:
        raise ValueError(f"{name}={dim} must be at most {at_most}")
    return dim


def check_floating(dtype: torch.dtype) -> torch.dtype:
    """``dtype`` if codes can be given in it.

    Raises:
        TypeError: not a real floating dtype.
    """
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype={dtype!r} must be a real floating dtype, such as torch.float32")
    return dtype
