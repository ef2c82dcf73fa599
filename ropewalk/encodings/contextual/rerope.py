r"""ReRoPE: beyond a window every key stands at the same distance.

.. math:: s_{ij} = q_i^\top R(j - i)^{}\,k_j \to q_i^\top R(-d_{ij})\,k_j, \qquad
   d = \begin{cases} Δ & Δ < w \\ w & Δ \ge w \end{cases} \qquad
   \text{leaky: } d = w + \frac{Δ - w}{k} \text{ for } Δ \ge w

with Δ = i − j in tokens. ``log_length`` L also multiplies q by max(1, ln(i + 1) / ln L), so that
attention stays as sharp in a longer text; positions before 0 count as 0 there.

The two pieces are ``near``, q turned by i and k by j, and ``far``: q turned by w and k not at all
(leaky: q by w and a kth of i − w, k by a kth of j). Both are integer phases of one spectrum with
two axes, frequencies θ and θ/k. A cache can hold near keys turned once and raw ones for far pairs.

Source: Su Jianlin (2023), Rectified Rotary Position Embeddings (kexue.fm/archives/9708), and the
code bojone/rerope: window 512, factor 16, training length 4096. Its leaky patch chooses near for
\|Δ\| < w and far otherwise, turns far queries by i + w(k − 1) over k, and multiplies q by the
clipped logarithm; its plain patch, of which an excerpt was read, turns far queries by w. Confirmed:
a loop over distances agrees. The log factor breaks relative, norm and bounded (variant).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.encodings.pieces import PIECE_CLAIMS, PIECE_REASONS, Pieces, Side, one_axis
from ropewalk.encodings.width import check_dim
from ropewalk.spectra import Layout, Spectrum
from ropewalk.spectra.arguments import check_number


class ReRoPE(Pieces):
    """RoPE whose distances end at a window, or grow more slowly beyond it.

    Args:
        head_dim: width of a head, or a Spectrum of one axis.
        window: tokens w within which distances are those of RoPE.
        leak: the factor k by which distances grow more slowly beyond the window; not at all if
            None.
        log_length: training length L of the logarithmic factor of q; none if None.
        base, layout, rotary_dim, scaling: as in :class:`ropewalk.RoPE`.
    """

    pieces = ("near", "far")

    def __init__(
        self,
        head_dim: int | Spectrum,
        base: float | None = None,
        *,
        window: int = 512,
        leak: float | None = None,
        log_length: int | None = None,
        layout: Layout | None = None,
        rotary_dim: int | None = None,
        scaling: Any = None,
    ) -> None:
        one = one_axis(head_dim, base, layout=layout, rotary_dim=rotary_dim, scaling=scaling)
        self.window = check_dim(window, "window", at_most=1 << 40)
        if leak is not None:
            leak = check_number("leak", leak, at_least=1)
        if log_length is not None and check_dim(log_length, "log_length", 1 << 40) < 2:
            raise ValueError(f"log_length={log_length} must be at least 2: ln 1 is 0")
        ((row,),) = one.matrices
        slow = tuple(f / leak if leak else 0.0 for f in row)
        super().__init__(one.replace(freqs=(row, slow)))
        self.leak, self.log_length = leak, log_length

    def place(self, piece: str, side: Side, positions: Tensor) -> Tensor:
        """On the axes θ and θ/k: (p, 0) near; (w, i − w) and (0, j) far."""
        zero = torch.zeros_like(positions)
        if piece == "near":
            return torch.stack((positions, zero), dim=-1)
        if side == "q":
            return torch.stack((zero + self.window, positions - self.window), dim=-1)
        return torch.stack((zero, positions), dim=-1)

    def applies(self, piece: str, i: Tensor, j: Tensor) -> Tensor:
        """Far: Δ ≥ w."""
        return i - j >= self.window

    def distance(self, i: int, j: int) -> float:
        """d, with the sign of i − j."""
        apart = abs(i - j)
        if apart >= self.window:
            apart = self.window + ((apart - self.window) / self.leak if self.leak else 0)
        return apart if i >= j else -apart

    def stretch(self, positions: Tensor, dtype: torch.dtype) -> Tensor | None:
        """max(1, ln(i + 1) / ln L)."""
        if self.log_length is None:
            return None
        seen = (positions.clamp(min=0) + 1).to(dtype)
        return (seen.log() / math.log(self.log_length)).clamp(min=1)

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        extra = "" if self.leak is None else f", leak={self.leak}"
        extra += "" if self.log_length is None else f", log_length={self.log_length}"
        return f"head_dim={self.head_dim}, window={self.window}{extra}"


register(
    Spec(
        name="rerope",
        family="contextual",
        factory=ReRoPE,
        title="rotary with distances that end at a window",
        equation=r"q_i^\top R(-d_{ij})\,k_j,\quad d_{ij} = \min(i - j,\; w)",
        source="Su (2023), Rectified Rotary Position Embeddings",
        config={"head_dim": 64},
        claims={**PIECE_CLAIMS, "relative": True},
        reasons={**PIECE_REASONS, "unique": "distances beyond the window are one"},
        variants={
            "leaky": Variant(
                {"leak": 16.0}, {"unique": True}, "distances grow by 1/16 beyond the window"
            ),
            "log factor": Variant(
                {"log_length": 64},
                {"relative": False, "norm": False, "bounded": False, "precision": False},
                "q grows with the logarithm of its position",
            ),
        },
    )
)
