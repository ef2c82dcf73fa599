"""A refusal before anything is written."""

from __future__ import annotations


class Misfit(ValueError, RuntimeError):
    """Tensors that the kernel does not take as they are.

    A ``ValueError`` for who calls the kernel himself; :mod:`ropewalk.kernels.fused` knows a
    ``RuntimeError`` as the sign to go the careful way.
    """


def check(condition: bool, message: str) -> None:
    """Refuse where the condition does not hold.

    Raises:
        Misfit: it does not.
    """
    if not condition:
        raise Misfit(message)
