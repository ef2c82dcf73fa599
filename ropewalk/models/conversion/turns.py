"""Which entries of a tensor change places when the pairs of rotated lanes are laid out anew.

A head's w rotated lanes hold w/2 pairs: ``half`` (i, i + w/2), ``interleaved`` (2i, 2i + 1). Moving
the lanes of q and k alike leaves every score q·k what it was, if the rotation pairs them likewise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LAYOUTS = ("half", "interleaved")


def order(width: int, to: str) -> tuple[int, ...]:
    """For each of ``width`` lanes in the layout ``to``, where it stood in the other one."""
    n = width // 2
    if to == "interleaved":
        return tuple(i // 2 + n * (i % 2) for i in range(width))
    return tuple(2 * (i % n) + i // n for i in range(width))


@dataclass(frozen=True)
class Turn:
    """One tensor's change: along ``axis``, the lanes from each of these starts on change places.

    ``q`` and ``k`` hold where the rotated lanes of each head start; a fused tensor has both. What
    lies outside of them stays.
    """

    axis: int
    q: tuple[int, ...]
    k: tuple[int, ...]
    width: int

    def sources(self, size: int, to: str) -> np.ndarray:
        """For each of ``size`` entries along the axis, the one that goes there. ``[size]``

        Raises:
            ValueError: the lanes overlap or lie outside.
        """
        index = np.arange(size)
        lanes = np.array(order(self.width, to))
        starts = np.array(sorted((*self.q, *self.k)))
        gaps = np.diff([*starts, size])
        if len(starts) and (starts[0] < 0 or gaps.min() < self.width):
            raise ValueError(f"lanes of {self.width} do not fit {size} entries")
        for start in starts:
            index[start : start + self.width] = start + lanes
        return index
