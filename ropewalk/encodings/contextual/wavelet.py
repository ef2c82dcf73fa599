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
the keys. Scales above 2¹⁰ go pair by pair, one scale at a time, and so does a call with few pairs,
such as a decode step.

Source: Wavelet-based Positional Representation for Long Context (Oka et al., 2025), §5.1 equations
10–14 and §6.3.1. Confirmed: every formula here but one with the text of the paper; the largest and
smallest value and where the code vanishes with the figures of the literature. Equation 15 gives the
Haar wavelet on −1 ≤ u < 0 "since the decoder uses t < 0", although t = m − n is positive for keys
before the query; read to the letter, keys would be seen up to b − 1 tokens back at any scale. Here
it is mirrored, so that its window lies before the query and grows with a.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Block, Contextual
from ropewalk.encodings.offsets import at_rows, offsets
from ropewalk.encodings.width import check_dim
from ropewalk.kernels.fused import eager
from ropewalk.spectra.arguments import check_number, check_option, shown

Kind = Literal["ricker", "gaussian", "haar", "morlet"]
SHAPES: dict[Kind, Callable[[Tensor, Tensor], Tensor]] = {
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

    scale: Tensor
    shift: Tensor

    def __init__(
        self, head_dim: int, *, scales: int | Sequence[float] = 8, kind: Kind = "ricker"
    ) -> None:
        super().__init__()
        self.head_dim = check_dim(head_dim, "head_dim")
        if isinstance(scales, int):
            scales = [2.0**n for n in range(check_dim(scales, "scales", at_most=1000))]
        if isinstance(scales, (str, bytes)) or not isinstance(scales, Sequence) or not scales:
            raise TypeError(f"scales={shown(scales)} must be an int or a sequence of numbers")
        self.scales = tuple(check_number(f"scales[{n}]", a, above=0) for n, a in enumerate(scales))
        if head_dim % len(self.scales):
            raise ValueError(
                f"head_dim={head_dim} is not a multiple of {len(self.scales)} scales; each has "
                "the same number of shifts"
            )
        check_option("kind", kind, SHAPES)
        self.kind: Kind = kind
        self.near = tuple(n for n, a in enumerate(self.scales) if a <= WIDEST_SCALE)
        """Which scales may be read from a table of distances."""
        self.far = tuple(n for n, a in enumerate(self.scales) if a > WIDEST_SCALE)
        self.widest = min(max(self.scales), WIDEST_SCALE)
        self.register_derived()

    @property
    def shifts(self) -> int:
        """How many shifts each scale has."""
        return self.head_dim // len(self.scales)

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """Scale and shift of each lane, float64."""
        scale = [a for a in self.scales for _ in range(self.shifts)]
        shift = [float(b) for _ in self.scales for b in range(self.shifts)]
        return {
            name: torch.tensor(values, dtype=torch.float64, device=device)
            for name, values in (("scale", scale), ("shift", shift))
        }

    def code(
        self,
        offset: Tensor,
        dtype: torch.dtype = torch.float64,
        scales: Sequence[int] | None = None,
    ) -> Tensor:
        """p(Δ) ``[..., head_dim]`` for int64 offsets i − j, or the lanes of some scales."""
        moved = self.scale.device != offset.device
        lanes = self.derive(offset.device) if moved else {"scale": self.scale, "shift": self.shift}
        scale, shift = (self._lanes(lanes[name], scales) for name in ("scale", "shift"))
        u = (offset[..., None].to(torch.float64) - shift) / scale
        return SHAPES[self.kind](u, scale).to(dtype)

    def _lanes(self, x: Tensor, scales: Sequence[int] | None) -> Tensor:
        """The lanes of these scales; all of them if None."""
        if scales is None or len(scales) == len(self.scales):
            return x
        return torch.cat([x.narrow(-1, n * self.shifts, self.shifts) for n in scales], dim=-1)

    def bias(self, block: Block) -> Tensor:
        """scale · q·p, ``[..., H, q_tokens, kv_tokens]``.

        Raises:
            ValueError: q has another width.
        """
        if block.q.shape[-1] != self.head_dim:
            raise ValueError(
                f"q has head_dim {block.q.shape[-1]}; these wavelets are {self.head_dim}"
            )
        q = block.q * block.scale
        offset = offsets(block.q_positions, block.kv_positions)
        reach = REACH_FLOAT64 if q.dtype == torch.float64 else REACH
        reach = int(reach * self.widest) + self.shifts
        low, high = _ends(block, reach)
        if offset.shape[-1] * offset.shape[-2] <= high - low:
            return self._by_pair(q, offset, None)
        parts = [self._by_distance(q, offset, low, high)] if self.near else []
        for n in self.far:
            parts.append(self._by_pair(q, offset, (n,)))
        return functools.reduce(operator.add, parts)

    def _by_distance(self, q: Tensor, offset: Tensor, low: int, high: int) -> Tensor:
        """Products with every distance from low to high once; the code is 0 beyond."""
        line = torch.arange(low, high + 1, device=offset.device)
        table = self.code(line, q.dtype, self.near)
        rows = offset.clamp(low, high) - low
        return at_rows(self._lanes(q, self.near) @ table.T, rows)

    def _by_pair(self, q: Tensor, offset: Tensor, scales: Sequence[int] | None) -> Tensor:
        """Products with a code for each pair."""
        code = self.code(offset.squeeze(-3), q.dtype, scales).transpose(-1, -2)
        q = self._lanes(q, scales).transpose(-2, -3)
        # contiguous, so that positions of each row and positions of all are multiplied alike
        return (q @ code.contiguous()).transpose(-2, -3)

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        scales = ", ".join(f"{a:g}" for a in self.scales)
        return f"head_dim={self.head_dim}, kind={self.kind!r}, scales=({scales})"


def _ends(block: Block, reach: int) -> tuple[int, int]:
    """The least and the greatest distance that a table needs; ±reach where reading costs more."""
    q, k = block.q_positions, block.kv_positions
    if not eager() or q.device.type != "cpu" or not (q.numel() and k.numel()):
        return -reach, reach
    (q_low, q_high), (k_low, k_high) = (
        map(int, torch.stack(torch.aminmax(x)).tolist()) for x in (q, k)
    )
    least, most = q_low - k_high, q_high - k_low
    if least < -(1 << 63) or most >= 1 << 63:  # offsets have wrapped
        return -reach, reach
    return max(-reach, min(least, reach)), min(reach, max(most, -reach))


def _sees_far(config: Mapping[str, Any]) -> bool:
    """Whether the largest window is wide enough for distances up to 2048; Haar's has no slope."""
    scales, kind = config.get("scales", 8), config.get("kind", "ricker")
    largest = 2.0 ** (scales - 1) if isinstance(scales, int) else max(scales)
    return kind != "haar" and largest >= (512 if kind == "ricker" else 1024)


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
                "the largest window tells all distances below 2048 apart",
                when=_sees_far,
            ),
        },
    )
)
