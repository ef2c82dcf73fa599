r"""Wavelet: each lane of the query looks at distances through a window of its own size and place.

.. math:: e_{ij} = \frac{q_i^\top k_j + q_i^\top p(i - j)}{\sqrt d}, \qquad
   p(Δ)_{(a, b)} = ψ\!\left(\frac{Δ - b}{a}\right)

with the scales a = 1, 2, 4, …, 2^(s−1) and the shifts b = 0 … d/s − 1 (tokens) in all
combinations, one a lane; lanes with the same scale lie together. There is no factor 1/√a.

- ``"ricker"``: (1 − u²) e^(−u²/2)
- ``"gaussian"``: e^(−u²)
- ``"morlet"``: e^(−u²) cos(a u), whose frequency is the same at every scale
- ``"haar"``: 1 for 0 < u ≤ ½, −1 for ½ < u ≤ 1, else 0

Computed in float64 and rounded once to the dtype of q. A wavelet is exactly 0 beyond about 15 a
tokens in float32 (39 a in float64), so :math:`q^\top p` is taken with every distance up to there
once and handed out by distance: memory for a block of queries grows with the keys, not with d times
the keys. Scales above 2¹⁰, and calls with few pairs such as a decode step, go pair by pair instead.

Source: Wavelet-based Positional Representation for Long Context (Oka et al., 2025), §5.1 equations
10–14 and §6.3.1. Confirmed: every formula here but one with the text of the paper; the largest and
smallest value and where the code vanishes with the figures of the literature. Equation 15 gives the
Haar wavelet on −1 ≤ u < 0 "since the decoder uses t < 0", although t = m − n is positive for keys
before the query; read to the letter, keys would be seen up to b − 1 tokens back at any scale. Here
it is mirrored, so that its window lies before the query and grows with a.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Block, Contextual
from ropewalk.encodings.offsets import at_rows, offsets
from ropewalk.encodings.width import check_dim
from ropewalk.spectra.arguments import check_number

Kind = Literal["ricker", "gaussian", "haar", "morlet"]
SHAPES: dict[Kind, Callable[[Tensor, float], Tensor]] = {
    "ricker": lambda u, a: (1 - u.square()) * (-u.square() / 2).exp(),
    "gaussian": lambda u, a: (-u.square()).exp(),
    "morlet": lambda u, a: (-u.square()).exp() * (a * u).cos(),
    "haar": lambda u, a: ((u > 0) & (u <= 1)).to(u.dtype) * (1 - 2 * (u > 0.5).to(u.dtype)),
}
"""ψ of u, and of the scale where it matters."""

REACH = 15
REACH_FLOAT64 = 39
"""|u| from which every wavelet rounds to 0, in float32 and in float64."""

WIDEST_SCALE = 2.0**10
"""Larger scales would need a table of more distances than a block has pairs."""


class Wavelet(Contextual):
    """Fixed wavelets of distance, read by the query.

    Args:
        head_dim: width of q and k, a multiple of the number of scales.
        scales: s, for 1, 2, 4, …, 2^(s−1) tokens; or the scales themselves.
        kind: ``"ricker"``, ``"gaussian"``, ``"haar"`` or ``"morlet"``.

    Raises:
        TypeError, ValueError: a value is out of range, or lanes cannot be shared out equally.
    """

    def __init__(
        self, head_dim: int, *, scales: int | Sequence[float] = 8, kind: Kind = "ricker"
    ) -> None:
        super().__init__()
        self.head_dim = check_dim(head_dim, "head_dim")
        if isinstance(scales, int):
            scales = [2.0**n for n in range(check_dim(scales, "scales", at_most=1000))]
        if isinstance(scales, str) or not isinstance(scales, Sequence) or not scales:
            raise TypeError(f"scales={scales!r} must be an int or a sequence of numbers")
        self.scales = tuple(check_number(f"scales[{n}]", a, above=0) for n, a in enumerate(scales))
        if head_dim % len(self.scales):
            raise ValueError(
                f"head_dim={head_dim} is not a multiple of {len(self.scales)} scales; each has "
                "the same number of shifts"
            )
        if kind not in SHAPES:
            raise ValueError(f"kind={kind!r} is unknown; use one of {tuple(SHAPES)}")
        self.kind: Kind = kind
        self.small = tuple(n for n, a in enumerate(self.scales) if a <= WIDEST_SCALE)
        """Which scales may be read from a table of distances."""
        self.widest = max([0.0, *(self.scales[n] for n in self.small)])

    @property
    def shifts(self) -> int:
        """How many shifts each scale has."""
        return self.head_dim // len(self.scales)

    def wavelets(self, offset: Tensor, scale: float) -> Tensor:
        """ψ((Δ − b)/a) of all shifts in float64, ``[..., shifts]``, for int64 offsets i − j."""
        shift = torch.arange(self.shifts, device=offset.device)
        u = (offset[..., None] - shift).to(torch.float64) / scale
        return SHAPES[self.kind](u, scale)

    def code(self, offset: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """p(Δ) ``[..., head_dim]`` for int64 offsets i − j."""
        return torch.cat([self.wavelets(offset, a) for a in self.scales], dim=-1).to(dtype)

    def bias(self, block: Block) -> Tensor:
        """scale · q·p, ``[..., H, q_tokens, kv_tokens]``.

        Raises:
            ValueError: q has another width.
        """
        if block.q.shape[-1] != self.head_dim:
            raise ValueError(
                f"q has head_dim {block.q.shape[-1]}; these wavelets are {self.head_dim}"
            )
        offset = offsets(block.q_positions, block.kv_positions)
        parts = (block.q * block.scale).split(self.shifts, dim=-1)
        reach = REACH_FLOAT64 if block.q.dtype == torch.float64 else REACH
        reach = int(reach * self.widest) + self.shifts
        many = offset.shape[-1] * offset.shape[-2] >= 2 * reach
        near = self.small if many else ()
        total = block.q.new_zeros(())
        if near:
            total = total + self._by_distance(parts, near, offset, reach)
        for n, a in enumerate(self.scales):
            if n not in near:
                total = total + self._by_pair(parts[n], a, offset)
        return total

    def _by_distance(
        self, parts: Sequence[Tensor], near: Sequence[int], offset: Tensor, reach: int
    ) -> Tensor:
        """Products with every distance once, the farthest of which are 0."""
        line = torch.arange(-reach, reach + 1, device=offset.device)
        table = torch.cat([self.wavelets(line, self.scales[n]) for n in near], dim=-1)
        q = torch.cat([parts[n] for n in near], dim=-1)
        return at_rows(q @ table.to(q.dtype).T, offset.clamp(-reach, reach) + reach)

    def _by_pair(self, q: Tensor, scale: float, offset: Tensor) -> Tensor:
        """Products of one scale with a wavelet for each pair."""
        code = self.wavelets(offset.squeeze(-3), scale).to(q.dtype)
        return (q.transpose(-2, -3) @ code.transpose(-1, -2)).transpose(-2, -3)

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        scales = ", ".join(f"{a:g}" for a in self.scales)
        return f"head_dim={self.head_dim}, kind={self.kind!r}, scales=({scales})"


register(
    Spec(
        name="wavelet",
        family="contextual",
        factory=Wavelet,
        title="wavelets of distance in several sizes, read by the query",
        equation=r"e_{ij} = \tfrac{1}{\sqrt d}\,\bigl(q_i^\top k_j + q_i^\top p(i - j)\bigr),\quad "
        r"p(\Delta)_{(a, b)} = \psi\bigl(\tfrac{\Delta - b}{a}\bigr)",
        source="Oka et al. (2025), Wavelet-based Positional Representation for Long Context",
        config={"head_dim": 64},
        claims={
            "unique": False,
            "relative": True,
            "bounded": True,
            "decay": False,
            "extends": True,
            "deterministic": True,
            "precision": True,
        },
        reasons={
            "unique": "the code vanishes beyond the largest window",
            "linear": "a bias has no code to shift",
            "norm": "q and k are untouched",
            "decay": "a wavelet rises to its shift, and falls below 0",
            "axes": "one axis",
        },
        variants={
            "Haar": Variant({"kind": "haar"}),
            "large scales": Variant(
                {"scales": 16},
                {"unique": True},
                "the largest window, of 2¹⁵ tokens, tells all distances apart",
                when=lambda config: config.get("scales") == 16,
            ),
        },
    )
)
