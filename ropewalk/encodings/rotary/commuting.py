r"""ComRoPE: blocks of lanes turn by trainable generators that commute.

.. math:: R(p) = \exp\Bigl(\sum_n p_n A_n\Bigr), \qquad
          A_n = \mathrm{diag}(B_{n,1}, …, B_{n,m}), \qquad B_{n,j} \text{ skew } b × b

Axis partition (``"ap"``): :math:`B_{n,j} = P_j - P_j^\top` if j ≡ n mod N, else 0. Linear
dependence (``"ld"``): :math:`B_{n,j} = θ_{n,j}(P_j - P_j^\top)`, θ shared by the heads. Since the A
commute, R(p)ᵀR(p') = R(p' − p) and the score is relative.

A skew B = V·diag(−iw)·V* turns by exact phases in its eigenvectors,

.. math:: \exp(sB)\,x = \mathrm{Re}\bigl(V e^{-isw} V^*x\bigr)

so one decomposition a block serves every position, however far. The gradient needs the eigenvalues
w of a block to differ: at generators of 0 it is nan.

Source: ComRoPE: Scalable and Robust Rotary Position Embedding Parameterized by Trainable Commuting
Angle Matrices (Yu et al., CVPR 2025), and the authors' code: P and θ ~ N(0, 1), coordinates
(i + ½)/size. Confirmed: against the matrix exponential, and AP and LD against their block
definitions (tests/test_catalogue_axes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import token_positions, wide_dtype
from ropewalk.encodings.alike import Alike
from ropewalk.encodings.claims import ROTATION_CLAIMS, ROTATION_REASONS
from ropewalk.encodings.turning import (
    by_blocks,
    by_exponential,
    check_vectors,
    skew,
    turned_by_tables,
)
from ropewalk.encodings.width import check_dim, check_std, empty_parameter
from ropewalk.kernels.learned import learned_tables
from ropewalk.spectra.arguments import check_number, check_option

Kind = Literal["ap", "ld"]
KINDS: tuple[Kind, ...] = ("ap", "ld")


class CommutingRoPE(Alike):
    """Rotation by commuting generators, a block of lanes each.

    Args:
        head_dim: width of a head, a multiple of block_size (times axes for ``"ap"``).
        heads: heads of k with generators of their own; each serves its group of q's heads.
        kind: ``"ap"`` gives each block one axis, ``"ld"`` one generator and a factor per axis.
        axes: number of position axes.
        block_size: b, at least 2.
        std: standard deviation of the initial P, above 0.
        unit: size of one integer position in coordinates.
        device, dtype: of the parameters: ``weight``, P as ``[heads, blocks, b, b]``, and with
            ``"ld"`` ``factors``, θ as ``[axes, blocks]``.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    factors: Tensor | None

    def __init__(
        self,
        head_dim: int,
        heads: int,
        kind: Kind = "ap",
        *,
        axes: int = 2,
        block_size: int = 8,
        std: float = 1.0,
        unit: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_option("kind", kind, KINDS)
        self.kind = kind
        self.head_dim = check_dim(head_dim, "head_dim")
        self.heads, self.axes = check_dim(heads, "heads"), check_dim(axes, "axes")
        self.block_size = check_block(head_dim, block_size, axes if kind == "ap" else 1)
        self.std = check_std(std)
        self.unit = check_number("unit", unit, above=0)
        blocks = head_dim // block_size
        shape = (heads, blocks, block_size, block_size)
        self.weight = empty_parameter(shape, device, dtype)
        self.factors = None
        if kind == "ld":
            self.factors = empty_parameter((axes, blocks), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw P, and θ."""
        nn.init.normal_(self.weight, std=self.std)
        if self.factors is not None:
            nn.init.normal_(self.factors)
        super().reset_parameters()

    def shares(self) -> Tensor:
        """By how much position axis n turns block j, ``[axes, blocks]`` in float64."""
        if self.factors is not None:
            return self.factors.to(torch.float64)
        blocks = torch.arange(self.weight.shape[1], device=self.weight.device)
        axes = torch.arange(self.axes, device=self.weight.device)
        return (blocks % self.axes == axes[:, None]).to(torch.float64)

    def turned(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None, inverse: bool
    ) -> Tensor:
        """x ``[..., H, T, head_dim]`` turned, H a multiple of heads."""
        check_vectors(x, self.head_dim, self.heads)
        where = token_positions(positions, offset, x, self.axes)
        wide = wide_dtype(x.dtype)
        speeds, vectors = torch.linalg.eigh(1j * skew(self.weight))
        speeds = (speeds - speeds.flip(-1)) / 2  # ±w in pairs, to the last bit
        freqs = -self.shares()[:, :, None] * speeds[:, None]  # [heads, axes, blocks, b]
        tables = learned_tables(where, freqs.flatten(-2), wide, self.unit)
        # V*x as neighbouring lanes, its real and imaginary part, and Re(V·) as the transpose
        inwards = torch.stack((vectors.real, -vectors.imag), dim=-1).flatten(-2).to(wide)
        lanes = by_blocks(x.to(wide), inwards.transpose(-1, -2))
        turned = turned_by_tables(lanes, *tables, "interleaved", inverse)
        return by_blocks(turned, inwards).to(x.dtype)

    def reference(
        self, x: Sequence[float], position: int | Sequence[int], head: int = 0
    ) -> list[float]:
        """One vector of head ``head`` (of k) by the power series of exp, in float64 loops."""
        where = (position,) if isinstance(position, int) else tuple(position)
        own = skew(self.weight[min(head, self.heads - 1)].detach().to("cpu")).tolist()
        shares = self.shares().detach().to("cpu").tolist()
        result: list[float] = []
        for block, generator in enumerate(own):
            size = sum(p * self.unit * row[block] for p, row in zip(where, shares, strict=True))
            exponent = [[size * entry for entry in row] for row in generator]
            start = block * self.block_size
            result += by_exponential(exponent, x[start : start + self.block_size])
        return result

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return (
            f"head_dim={self.head_dim}, heads={self.heads}, kind={self.kind!r}, axes={self.axes}, "
            f"block_size={self.block_size}"
        )


def check_block(head_dim: int, block_size: int, parts: int = 1) -> int:
    """``block_size`` if blocks of it fill head_dim, and as many each of ``parts``.

    Raises:
        TypeError, ValueError: they do not.
    """
    check_dim(block_size, "block_size")
    if block_size < 2:
        raise ValueError(f"block_size={block_size} cannot turn; use at least 2")
    if head_dim % (block_size * parts):
        shared = f" shared by axes={parts}" if parts > 1 else ""
        raise ValueError(
            f"head_dim={head_dim} is not a multiple of {block_size * parts}: blocks of "
            f"block_size={block_size}{shared}; use such a head_dim, or another block_size"
        )
    return block_size


register(
    Spec(
        name="commuting",
        family="rotary",
        factory=CommutingRoPE,
        title="rotation of blocks by commuting generators (ComRoPE)",
        equation=r"R(p) = \exp\bigl(\textstyle\sum_n p_n A_n\bigr),\; A_n = "
        r"\mathrm{diag}(B_{n,1}, \dots),\; B_{n,j} = \theta_{n,j}(P_j - P_j^\top)",
        source="Yu et al. (2025), ComRoPE: Scalable and Robust Rotary Position Embedding "
        "Parameterized by Trainable Commuting Angle Matrices",
        config={"head_dim": 64, "heads": 2},
        claims={**ROTATION_CLAIMS, "axes": True, "deterministic": False},
        reasons={
            "decay": ROTATION_REASONS["decay"],
            "deterministic": "generators are drawn at random, then trained",
            "unique": "with the initial generators; training may merge positions",
        },
        variants={"linearly dependent": Variant({"kind": "ld"})},
    )
)
