"""The width of an additive code, checked."""

from __future__ import annotations


def check_dim(dim: int, name: str = "dim") -> int:
    """``dim`` if it is an int ≥ 1.

    Raises:
        TypeError: not an int.
        ValueError: below 1.
    """
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TypeError(f"{name}={dim!r} must be an int")
    if dim < 1:
        raise ValueError(f"{name}={dim} must be at least 1")
    return dim
