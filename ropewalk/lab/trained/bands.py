"""Bands of pairs that stop rotating, or are taken away, in every layer of a model at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.lab.trained.norms import Attention
from ropewalk.lab.trained.rotations import Change
from ropewalk.lab.trained.turning import Turning

FREE, ZEROED = "position-free", "zeroed"
"""Frequency 0, so that content passes and position does not; q and k zero, so that neither does."""
_PARTS = {1: "all", 2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 8: "eighth"}
_NUMBERS = {1: "1st", 2: "2nd", 3: "3rd"}

Chosen = Mapping[tuple[int, int], tuple[int, ...]]
"""The pairs that are changed, by the number of the layer and how many pairs turn in it."""


@dataclass(frozen=True)
class Band:
    """Pairs from a share ``start`` to a share ``stop`` of all, from the fastest on."""

    name: str
    start: float
    stop: float

    def of(self, order: Sequence[int]) -> tuple[int, ...]:
        """Its pairs, of ``order`` from the fastest to the slowest."""
        return tuple(order[round(self.start * len(order)) : round(self.stop * len(order))])

    def chosen(self, attentions: Sequence[Attention]) -> Chosen:
        """Its pairs in every layer, each by its own frequencies."""
        return {(a.layer, len(a.frequencies)): self.of(a.order) for a in attentions}


def equal_bands(count: int) -> tuple[Band, ...]:
    """``count`` bands of as many pairs each, the fastest first."""
    return tuple(Band(_name(i, count), i / count, (i + 1) / count) for i in range(count))


def kept(p: float) -> Band:
    """The pairs that p-RoPE lets stand: all but the share ``p`` of the fastest."""
    return Band(f"p = {p:g}", p, 1.0)


def _name(place: int, count: int) -> str:
    part = _PARTS.get(count, f"1/{count}")
    if count == 1:
        return "all pairs"
    if place in (0, count - 1):
        return f"{'slowest' if place else 'fastest'} {part}"
    return f"{_NUMBERS.get(place + 1, f'{place + 1}th')} fastest {part}"


class Banded(Change):
    """Changes the tables of the chosen pairs, for q and k alike."""

    def __init__(self, chosen: Chosen, treatment: str) -> None:
        if treatment not in (FREE, ZEROED):
            raise ValueError(f"treatment={treatment!r} is unknown; use {FREE!r} or {ZEROED!r}")
        self.chosen, self.treatment = chosen, treatment

    def before(self, seen: Turning) -> Turning:
        """The tables without their rotation, or empty, in the pairs of the layer."""
        pairs = list(self.chosen.get((seen.layer, seen.cos.shape[-1]), ()))
        if not pairs:
            return seen
        cos, sin = seen.cos.clone(), seen.sin.clone()
        cos[..., pairs] = length(seen)[pairs] if self.treatment == FREE else 0.0
        sin[..., pairs] = 0.0
        return seen.changed(cos=cos, sin=sin)


def length(seen: Turning) -> Tensor:
    """By how much the tables multiply each pair (the attention factor), ``[pairs]``."""
    found = torch.hypot(seen.cos.double(), seen.sin.double())
    return found.flatten(0, -2).mean(0).to(seen.cos.dtype)
