r"""Binary: the bits of the position, one bit to a run of lanes.

.. math:: E(p)_j = \lfloor p / 2^{b(j)} \rfloor \bmod 2, \qquad b(j) = \lfloor j\,n/D \rfloor

Lane 0 holds the lowest bit; n bits are stretched over D lanes. Bounded and exact in any dtype, but
a step of 1 can flip every bit (7 → 8), so the code jumps, and no linear map shifts it.

Source: folklore; the discrete ancestor of the sinusoidal encoding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Additive, integer_positions
from ropewalk.encodings.width import check_dim, check_floating


class Binary(Additive):
    """The lowest ``bits`` bits of p (two's complement), stretched over ``dim`` lanes.

    Args:
        dim: width of the code, at least ``bits``.
        bits: 2^bits positions are told apart, 1 … 63; min(dim, 32) if None.
    """

    def __init__(self, dim: int, bits: int | None = None) -> None:
        super().__init__()
        self.dim = check_dim(dim)
        self.bits = min(dim, 32) if bits is None else check_dim(bits, "bits")
        if self.bits > min(dim, 63):
            raise ValueError(
                f"bits={self.bits} must be at most dim={dim} (each bit needs a lane) and at most 63"
            )

    def encode(
        self,
        positions: Tensor,
        *,
        length: int | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """``[..., T, dim]`` of zeros and ones; see the module."""
        where = integer_positions(positions)
        lanes = torch.arange(self.dim, device=where.device) * self.bits // self.dim
        return ((where[..., None] >> lanes) & 1).to(check_floating(dtype))

    def reference(self, position: int, length: int | None = None) -> list[float]:
        """The code of one position."""
        return [float(position // 2 ** (j * self.bits // self.dim) % 2) for j in range(self.dim)]


register(
    Spec(
        name="binary",
        family="additive",
        factory=Binary,
        title="the bits of the position",
        equation=r"E(p)_j = \lfloor p / 2^{b(j)} \rfloor \bmod 2",
        source="folklore",
        config={"dim": 64},
        claims={
            "unique": True,
            "linear": False,
            "relative": False,
            "norm": False,
            "bounded": True,
            "extends": True,
            "deterministic": True,
            "precision": True,
        },
        reasons={
            "unique": "up to 2^bits positions",
            "linear": "a carry is not linear",
            "relative": "added before the projections",
            "norm": "the code is added; its norm is √(set bits)",
            "decay": "additive codes have no score of their own",
            "axes": "one axis",
            "precision": "zeros and ones are exact in every dtype",
        },
        variants={
            "few bits": Variant(
                {"bits": 8},
                {"unique": False},
                "2^bits positions are told apart, fewer than the 8192 that are asked for",
                when=lambda config: (config.get("bits") or min(config["dim"], 32)) < 13,
            ),
        },
    )
)
