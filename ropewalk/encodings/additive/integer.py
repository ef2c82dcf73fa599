r"""Integer: the position itself in every lane, E(p) = p.

.. math:: E(p) = (p, p, \dots, p)

The first idea one has. Unbounded, so it drowns the embedding, and bfloat16 tells only 769 of the
first 4096 positions apart. p ↦ p + k is affine, not linear.

Source: folklore; the starting point of every account of positional encodings.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.catalog import Spec, register
from ropewalk.core import Additive, integer_positions
from ropewalk.encodings.width import check_dim, check_floating


class Integer(Additive):
    """E(p) = p in each of ``dim`` lanes."""

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
        """``[..., T, dim]``; see the module."""
        codes = integer_positions(positions).to(check_floating(dtype))
        return codes[..., None].expand(*codes.shape, self.dim)

    def reference(self, position: int, length: int | None = None) -> list[float]:
        """The code of one position."""
        return [float(position)] * self.dim


register(
    Spec(
        name="integer",
        family="additive",
        factory=Integer,
        title="the position itself in every lane",
        equation=r"E(p) = (p, p, \dots, p)",
        source="folklore",
        config={"dim": 64},
        claims={
            "unique": True,
            "linear": False,
            "relative": False,
            "norm": False,
            "bounded": False,
            "extends": True,
            "deterministic": True,
            "precision": False,
        },
        reasons={
            "linear": "p + k is an affine image of p, not a linear one",
            "relative": "added before the projections",
            "norm": "the code is added, and grows",
            "bounded": "grows with the position",
            "decay": "additive codes have no score of their own",
            "axes": "one axis",
            "precision": "bfloat16 is exact up to 256 only, float16 up to 2048",
        },
    )
)
