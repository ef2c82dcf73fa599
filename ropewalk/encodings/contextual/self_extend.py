r"""Self-Extend: near keys at their distance, far ones at the distance of their groups.

.. math:: d = \begin{cases} Δ & Δ < w \\
   \lfloor i/G \rfloor - \lfloor j/G \rfloor + w - \lfloor w/G \rfloor & Δ \ge w \end{cases}

with Δ = i − j in tokens, groups of G and a neighbour window of w. The shift w − ⌊w/G⌋ joins both:
at Δ = w the distance is w again, or off by one. A text of n tokens then needs distances up to
(n − w)/G + w only, those a model was trained on; no training.

The pieces are ``near`` (q by i, k by j) and ``grouped`` (q by ⌊i/G⌋ + w − ⌊w/G⌋, k by ⌊j/G⌋); a
cache holds each key turned twice, once for each piece.

Source: LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning (Jin et al., 2024), §3.
Confirmed: the code datamllab/LongLM (group_size_1 = G, 8; group_size_2 = w, 1024) gives the group
to pairs with i − j ≥ w and shifts queries as above. Where G does not divide w its prefill divides w
as a fraction and its decoding by floor; here both take the floor. That code also drops the shift
while the whole text is shorter than w, when no pair uses it. A loop over distances agrees.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.encodings.pieces import PIECE_CLAIMS, PIECE_REASONS, Pieces, Side, one_axis
from ropewalk.encodings.width import check_dim
from ropewalk.spectra import Layout, Spectrum


class SelfExtend(Pieces):
    """RoPE near by, RoPE of group numbers far away.

    Args:
        head_dim: width of a head, or a Spectrum of one axis.
        group: tokens G of a group.
        window: tokens w of the neighbourhood, at least ``group``.
        base, layout, rotary_dim, scaling: as in :class:`ropewalk.RoPE`.
    """

    pieces = ("near", "grouped")

    def __init__(
        self,
        head_dim: int | Spectrum,
        base: float | None = None,
        *,
        group: int = 8,
        window: int = 1024,
        layout: Layout | None = None,
        rotary_dim: int | None = None,
        scaling: Any = None,
    ) -> None:
        super().__init__(
            one_axis(head_dim, base, layout=layout, rotary_dim=rotary_dim, scaling=scaling)
        )
        self.window = check_dim(window, "window", at_most=1 << 40)
        self.group = check_dim(group, "group", at_most=1 << 40)
        if group > window:
            raise ValueError(f"group={group} is larger than window={window}; use group ≤ window")
        self.shift = window - window // group

    def place(self, piece: str, side: Side, positions: Tensor) -> Tensor:
        """Positions, or group numbers with the shift on queries."""
        if piece == "near":
            return positions
        groups = torch.div(positions, self.group, rounding_mode="floor")
        return groups + self.shift if side == "q" else groups

    def applies(self, piece: str, i: Tensor, j: Tensor) -> Tensor:
        """Grouped: Δ ≥ w."""
        return i - j >= self.window

    def distance(self, i: int, j: int) -> float:
        """d, with the sign of i − j."""
        if i < j:
            return -self.distance(j, i)
        return i - j if i - j < self.window else i // self.group - j // self.group + self.shift

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"head_dim={self.head_dim}, group={self.group}, window={self.window}"


register(
    Spec(
        name="self_extend",
        family="contextual",
        factory=SelfExtend,
        title="rotary near by, grouped positions far away",
        equation=r"d_{ij} = i - j\;(i - j < w),\quad \lfloor i/G \rfloor - \lfloor j/G \rfloor"
        r" + w - \lfloor w/G \rfloor\text{ else}",
        source="Jin et al. (2024), LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning",
        config={"head_dim": 64},
        claims=PIECE_CLAIMS,
        reasons={
            **PIECE_REASONS,
            "unique": "the tokens of a group are at one distance",
            "relative": "which tokens share a group depends on where the text starts",
        },
        variants={
            "groups of one": Variant(
                {"group": 1}, {"unique": True, "relative": True}, "plain RoPE: d is i − j"
            ),
        },
    )
)
