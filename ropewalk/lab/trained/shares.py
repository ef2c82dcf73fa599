"""The share of each pair in ‖q‖‖k‖, for layers that turn alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ropewalk.lab.trained.norms import Attention, by_frequency
from ropewalk.lab.trained.spread import Spread, spread

Attentions = Sequence[Attention]


@dataclass(frozen=True)
class Group:
    """Layers whose pairs have the same frequencies.

    layers          their numbers
    frequencies     radians a token, ``[pairs]``; 0 for a pair that does not turn
    shares          of each pair in ‖q‖‖k‖, averaged over layers and heads, over passages; empty
                    if no layer of them has keys of its own
    """

    layers: tuple[int, ...]
    frequencies: tuple[float, ...]
    shares: tuple[Spread, ...]

    @property
    def wavelengths(self) -> tuple[float, ...]:
        """Tokens for a whole turn; infinite for a pair that does not turn."""
        return tuple(2 * math.pi / f if f else math.inf for f in self.frequencies)

    @property
    def order(self) -> tuple[int, ...]:
        """The pairs from the fastest to the slowest."""
        return by_frequency(self.frequencies)


def groups_of(by_text: Sequence[Attentions]) -> tuple[Group, ...]:
    """The groups of a model, from its norms on each passage."""
    found: dict[tuple[float, ...], list[int]] = {}
    for place, attention in enumerate(by_text[0]):
        rounded = tuple(float(f"{f:.4g}") for f in attention.frequencies)
        found.setdefault(rounded, []).append(place)
    return tuple(_group(by_text, places) for places in found.values())


def _group(by_text: Sequence[Attentions], places: Sequence[int]) -> Group:
    own = [by_text[0][place] for place in places]
    pairs = len(own[0].frequencies)
    rows = [_mean_share(attentions[place] for place in places) for attentions in by_text]
    shares = [spread([row[c] for row in rows]) for c in range(pairs)] if all(rows) else []
    layers = tuple(sorted({attention.layer for attention in own}))
    return Group(layers, own[0].frequencies, tuple(shares))


def _mean_share(attentions: Iterable[Attention]) -> list[float]:
    """Averaged over attentions and heads."""
    rows = [share.mean(0) for a in attentions if (share := a.share) is not None]
    return [fmean(float(row[c]) for row in rows) for c in range(len(rows[0]))] if rows else []


def share_of_slowest_half(attention: Attention) -> float | None:
    """What the slower half of the pairs has of ‖q‖‖k‖, averaged over heads; None without keys."""
    share = attention.share
    slow = list(attention.order[(len(attention.order) + 1) // 2 :])
    return None if share is None else float(share[:, slow].sum(-1).mean())


def slowest_half(by_text: Sequence[Attentions]) -> Spread | None:
    """The same, averaged over all layers, over passages."""
    found = [
        [half for a in attentions if (half := share_of_slowest_half(a)) is not None]
        for attentions in by_text
    ]
    return spread([fmean(each) for each in found]) if all(found) else None
