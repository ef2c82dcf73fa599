"""A rotation read off keys: which lanes turn together, and by what angle.

The keys of many tokens at position p are one linear map of the same keys at 0; its columns are the
images of the lanes taken one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_SEEN = 1e-4
"""An entry of the map below this share is not told from rounding in float32."""


@dataclass(frozen=True)
class Turn:
    """A pair of lanes (first, second), and the angle that turns the first to the second."""

    first: int
    second: int
    angle: float


@dataclass(frozen=True)
class Seen:
    """What a map does: pairs that turn, lanes that mix in another way, lanes that stand.

    Entries of the map up to ``threshold`` are noise.
    """

    turns: tuple[Turn, ...]
    mixed: tuple[int, ...]
    width: int
    threshold: float = _SEEN

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes that move."""
        return tuple(sorted({i for t in self.turns for i in (t.first, t.second)} | {*self.mixed}))

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """The pairs without their angles."""
        return frozenset((t.first, t.second) for t in self.turns)

    @property
    def layout(self) -> str | None:
        """``"half"`` or ``"interleaved"``, if the pairs follow one of them."""
        pairs = sorted(self.pairs)
        if not pairs:
            return None
        if all(b == a + 1 and (a - pairs[0][0]) % 2 == 0 for a, b in pairs):
            return "interleaved" if len(pairs) > 1 else None
        apart = {b - a for a, b in pairs}
        return "half" if len(apart) == 1 and apart.pop() >= len(pairs) else None


def fitted(before: Tensor, after: Tensor) -> Tensor | None:
    """The map ``[lanes, lanes]`` with ``after = before @ map.T``; None if samples are too few.

    Args:
        before, after: ``[samples, lanes]`` in float64.
    """
    width = before.shape[-1]
    if len(before) < width:
        return None
    strength = torch.linalg.svdvals(before)
    if strength[-1] <= 1e-5 * strength[0]:
        return None
    return torch.linalg.lstsq(before, after).solution.T


def seen_in(mapped: Tensor, threshold: float = _SEEN) -> Seen:
    """The pairs of a square map whose lanes stay in their places."""
    width = mapped.shape[0]
    moved = (mapped - torch.eye(width, dtype=mapped.dtype)).abs() > threshold
    joined = moved | moved.T
    joined.fill_diagonal_(False)
    left = [i for i in range(width) if bool(moved[i].any() or moved[:, i].any())]
    turns, mixed = [], []
    for i in left:
        partners = joined[i].nonzero().flatten().tolist()
        if len(partners) != 1 or joined[partners[0]].sum() != 1:
            mixed.append(i)
        elif i < partners[0]:
            j = partners[0]
            angle = math.atan2(mapped[j, i].item(), mapped[i, i].item())
            turns.append(Turn(i, j, angle))
    return Seen(tuple(turns), tuple(mixed), width, threshold)


def in_words(lanes: tuple[int, ...]) -> str:
    """Lanes as ranges."""
    from ropewalk.configs.resolved import ranges

    return ranges(tuple(sorted(lanes))) if lanes else "none"
