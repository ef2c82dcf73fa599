r"""Normalised integer: the position as a fraction of the sequence, E(p) = p/(L − 1).

.. math:: E(p, L) = \Bigl(\tfrac{p}{L-1}, \dots, \tfrac{p}{L-1}\Bigr)

Bounded, but the code of a position depends on the length: position 5 is .5556 in ten tokens and
.0005 in ten thousand, and one step is never the same size.

Source: folklore. L = 1 gives 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.catalog import Spec, register
from ropewalk.core import Additive, integer_positions
from ropewalk.encodings.width import check_dim, check_floating


class Normalised(Additive):
    """E(p) = p/(L − 1) in each of ``dim`` lanes.

    L is ``length`` where it is passed, else the largest position + 1.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = check_dim(dim)

    def encode(
        self,
        positions: Tensor,
        *,
        length: int | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """``[..., T, dim]``; see the module.

        Args:
            positions: ``[..., T]``.
            length: L, an int or a tensor that broadcasts over positions.
            dtype: of the result.
        """
        where = integer_positions(positions)
        last = _last(where, length)
        codes = where.to(torch.float64) / last
        return codes.to(check_floating(dtype))[..., None].expand(*where.shape, self.dim)

    def reference(self, position: int, length: int | None = None) -> list[float]:
        """The code of one position in a sequence of ``length`` tokens (position + 1 if None)."""
        last = (position + 1 if length is None else length) - 1
        return [position / last if last > 0 else float(position)] * self.dim


def _last(where: Tensor, length: int | Tensor | None) -> Tensor | int:
    """L − 1, at least 1 so that a single token gets code 0."""
    if isinstance(length, Tensor):
        return (length - 1).clamp_min(1)
    if length is not None:
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ValueError(f"length={length!r} must be an int of at least 1")
        return max(length - 1, 1)
    if where.numel() == 0:
        return 1
    return where.max().clamp_min(1)


register(
    Spec(
        name="normalised",
        family="additive",
        factory=Normalised,
        title="the position as a fraction of the length",
        equation=r"E(p, L) = \bigl(\tfrac{p}{L-1}, \dots, \tfrac{p}{L-1}\bigr)",
        source="folklore",
        config={"dim": 64},
        claims={
            "unique": True,
            "linear": False,
            "relative": False,
            "norm": False,
            "bounded": True,
            "extends": False,
            "deterministic": True,
            "precision": False,
        },
        reasons={
            "unique": "at one length; across lengths codes coincide",
            "linear": "affine, and the step depends on the length",
            "relative": "added before the projections",
            "norm": "the code is added",
            "decay": "additive codes have no score of their own",
            "extends": "the code of a position changes with the length",
            "axes": "one axis",
            "precision": "steps of 1/(L − 1) vanish beside codes near 1 in low precision",
        },
        waivers={
            "prefix": "the code depends on the length of the sequence, which is its known fault",
            "offset": "the largest position sets the length",
            "batch": "the largest position of the batch sets the length unless it is passed",
        },
    )
)
