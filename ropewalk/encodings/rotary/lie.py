r"""LieRE: blocks of lanes turn by the exponential of a learned sum of generators.

.. math:: R(p) = \exp\Bigl(\sum_n p_n A_n\Bigr), \qquad
          A_n = \mathrm{diag}(B_{n,1}, …, B_{n,m}), \qquad B_{n,j} = U - U^\top,
          \; U \text{ the part of a } b × b \text{ parameter above the diagonal}

R is orthogonal, so norms are kept, but the A do not commute: R(p)ᵀR(p') is not a function of
p' − p, and the score is *not relative*. With one axis, or with b = 2, they commute; even then
exponents are float64 products, so that a shift of 2²⁰ moves the score by 5e-9 of its spread:
``commuting`` and ``mixed`` have exact phases. The exponential is taken in float64 and the result
made orthogonal to its last bits (:mod:`ropewalk.encodings.exponential`).

Source: LieRE: Lie Rotational Positional Encodings (Ostmeier et al., 2024), and the authors' code:
parameters uniform in [0, 2π), coordinates in [0, 1]. Confirmed: against the exponential of mpmath,
and with generic 8 × 8 generators shifts change scores as much as they spread
(tests/test_catalogue_axes.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import token_positions, wide_dtype
from ropewalk.encodings.alike import Alike
from ropewalk.encodings.claims import ROTATION_CLAIMS, ROTATION_REASONS
from ropewalk.encodings.exponential import rotations
from ropewalk.encodings.rotary.commuting import check_block
from ropewalk.encodings.turning import by_exponential, check_vectors, skew
from ropewalk.encodings.width import check_dim, empty_parameter
from ropewalk.spectra.arguments import LARGEST, check_number


class LieRoPE(Alike):
    """Rotation by the exponential of learned generators, a block of lanes each.

    Args:
        head_dim: width of a head, a multiple of block_size.
        heads: heads of k with generators of their own; each serves its group of q's heads.
        axes: number of position axes.
        block_size: b, from 2 to head_dim; the paper has 8 and 64. One matrix of b × b is made for
            every token, head and block.
        scale: initial entries are uniform in [0, scale).
        unit: size of one integer position in coordinates.
        device, dtype: of the parameter ``weight`` ``[heads, axes, blocks, b, b]``, of which the
            part above the diagonal is read.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    def __init__(
        self,
        head_dim: int,
        heads: int,
        *,
        axes: int = 2,
        block_size: int = 8,
        scale: float = 2 * math.pi,
        unit: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = check_dim(head_dim, "head_dim")
        self.heads, self.axes = check_dim(heads, "heads"), check_dim(axes, "axes")
        self.block_size = check_block(head_dim, block_size)
        self.scale = check_number("scale", scale, at_least=0, at_most=LARGEST)
        self.unit = check_number("unit", unit, above=0)
        shape = (heads, axes, head_dim // block_size, block_size, block_size)
        self.weight = empty_parameter(shape, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the entries of the generators."""
        nn.init.uniform_(self.weight, 0.0, self.scale)
        super().reset_parameters()

    def matrices(self, positions: Tensor) -> Tensor:
        """R in float64, ``[..., heads, T, blocks, b, b]``, for positions ``[..., T(, axes)]``."""
        generators = skew(self.weight.triu(1)).unsqueeze(2)  # [heads, axes, 1, blocks, b, b]
        planes = positions.unsqueeze(-1) if self.axes == 1 else positions
        share = (planes.to(torch.float64) * self.unit)[..., None, :, :, None, None, None]
        exponent = share[..., 0, :, :, :] * generators[:, 0]
        for axis in range(1, self.axes):
            exponent = exponent + share[..., axis, :, :, :] * generators[:, axis]
        return rotations(exponent)

    def turned(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None, inverse: bool
    ) -> Tensor:
        """x ``[..., H, T, head_dim]`` turned, H a multiple of heads."""
        group = check_vectors(x, self.head_dim, self.heads)
        where = token_positions(positions, offset, x, self.axes)
        wide = wide_dtype(x.dtype)
        turned = self.matrices(where).to(wide)
        turned = turned.mT if inverse else turned
        lanes = (x if x.dim() > 2 else x.unsqueeze(0)).to(wide)
        lanes = lanes.unflatten(-1, (-1, self.block_size)).unflatten(-4, (self.heads, group))
        turned = turned.unsqueeze(-5)  # [..., heads, 1, T, blocks, b, b]
        result = turned[..., 0] * lanes[..., 0, None]
        for column in range(1, self.block_size):  # a product whose order no batch size can change
            result = result + turned[..., column] * lanes[..., column, None]
        return result.reshape(x.shape).to(x.dtype)

    def reference(
        self, x: Sequence[float], position: int | Sequence[int], head: int = 0
    ) -> list[float]:
        """One vector of head ``head`` (of k) by the power series of exp, in float64 loops."""
        where = (position,) if isinstance(position, int) else tuple(position)
        own = skew(self.weight[min(head, self.heads - 1)].detach().to("cpu").triu(1)).tolist()
        count, result = range(self.block_size), []
        for block in range(self.head_dim // self.block_size):
            exponent = [
                [
                    sum(
                        p * self.unit * axis[block][i][j]
                        for p, axis in zip(where, own, strict=True)
                    )
                    for j in count
                ]
                for i in count
            ]
            start = block * self.block_size
            result += by_exponential(exponent, x[start : start + self.block_size])
        return result

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return (
            f"head_dim={self.head_dim}, heads={self.heads}, axes={self.axes}, "
            f"block_size={self.block_size}"
        )


def _commutes(config: Mapping[str, Any]) -> bool:
    return config.get("axes", 2) == 1 or config.get("block_size", 8) == 2


register(
    Spec(
        name="lie",
        family="rotary",
        factory=LieRoPE,
        title="rotation of blocks by a learned matrix exponential (LieRE)",
        equation=r"R(p) = \exp\bigl(\textstyle\sum_n p_n A_n\bigr),\quad A_n = -A_n^\top",
        source="Ostmeier et al. (2024), LieRE: Lie Rotational Positional Encodings",
        config={"head_dim": 64, "heads": 1},
        claims={
            **ROTATION_CLAIMS,
            "linear": False,
            "relative": False,
            "axes": False,
            "deterministic": False,
        },
        reasons={
            "linear": "generators do not commute: R(p + k) R(p)⁻¹ depends on p",
            "relative": "generators do not commute: R(p)ᵀR(p') is no function of p' − p",
            "axes": "places are told apart, but the score is not relative",
            "decay": ROTATION_REASONS["decay"],
            "deterministic": "generators are drawn at random, then trained",
            "unique": "with the initial generators; training may merge positions",
        },
        variants={
            "generators commute": Variant(
                {"block_size": 2},
                {"linear": True, "relative": False},
                "generators commute, yet float64 exponents shift scores by 5e-9 at 2²⁰",
                when=_commutes,
            ),
        },
    )
)
