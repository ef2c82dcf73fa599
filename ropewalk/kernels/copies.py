"""Given tables that hold each angle twice, as the lanes lie: their first copy."""

from __future__ import annotations

from torch import Tensor


def first_copies(cos: Tensor, sin: Tensor, lanes: int) -> tuple[Tensor, Tensor]:
    """cos and sin with one angle a pair; they are themselves where ``lanes`` say that they are so.

    ``lanes`` is the number of :class:`ropewalk.spectra.lanes.Turn`.

    Raises:
        RuntimeError: tables of two copies have an odd width, as no such tables have.
    """
    if not lanes >> 62:
        return cos, sin
    if cos.shape[-1] % 2 or sin.shape != cos.shape:
        raise RuntimeError("tables of two copies are alike and of an even width")
    if lanes & 2:
        return cos[..., 0::2], sin[..., 0::2]
    pairs = cos.shape[-1] // 2
    return cos.narrow(-1, 0, pairs), sin.narrow(-1, 0, pairs)
