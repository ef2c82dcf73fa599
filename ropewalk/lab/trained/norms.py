"""How large q and k are in each pair of lanes before they are rotated, and how fast pairs turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.lab.trained.rotations import Change
from ropewalk.lab.trained.turning import Turning

DIGITS = 6
"""Of a frequency, as far as tables in float32 tell it."""


@dataclass(frozen=True)
class Attention:
    """Norms in one attention of one layer.

    layer, part     the number of the layer, and which of its attentions (0 but for few models)
    q, k            mean over tokens of ‖(x_c, x_c')‖ for each pair c of lanes, before the rotation:
                    float64 ``[heads, pairs]``; k is None where another layer's keys are read
    frequencies     radians a token turns each pair, ``[pairs]``, at least 0
    """

    layer: int
    part: int
    q: Tensor
    k: Tensor | None
    frequencies: tuple[float, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The pairs from the fastest to the slowest."""
        return by_frequency(self.frequencies)

    @property
    def product(self) -> Tensor | None:
        """Mean of ‖q_c‖‖k_c‖ over all tokens of both, for each head of q: ``[heads, pairs]``."""
        if self.k is None:
            return None
        return self.q * self.k.repeat_interleave(len(self.q) // len(self.k), dim=0)

    @property
    def share(self) -> Tensor | None:
        """The share of each pair in the sum of :attr:`product` over pairs: ``[heads, pairs]``."""
        product = self.product
        return None if product is None else product / product.sum(-1, keepdim=True)


def by_frequency(frequencies: Sequence[float]) -> tuple[int, ...]:
    """Places from the highest to the lowest; equal ones as they come."""
    return tuple(sorted(range(len(frequencies)), key=lambda c: -frequencies[c]))


class Norms(Change):
    """Takes the norms of a pass through a model; changes nothing."""

    def __init__(self) -> None:
        self._found: dict[int, dict[str, list[tuple[Tensor, tuple[float, ...]]]]] = {}

    def before(self, seen: Turning) -> Turning:
        """Adds the norms of q or k."""
        own = self._found.setdefault(seen.layer, {"q": [], "k": []})
        own[seen.role].append((pair_norms(seen), frequencies(seen)))
        return seen

    def attentions(self) -> tuple[Attention, ...]:
        """What one pass showed, layer by layer."""
        return tuple(
            Attention(
                layer, part, q, own["k"][part][0] if part < len(own["k"]) else None, frequencies
            )
            for layer, own in sorted(self._found.items())
            for part, (q, frequencies) in enumerate(own["q"])
        )


def pair_norms(seen: Turning) -> Tensor:
    """Mean over tokens (and rows) of the norm of each pair, ``[heads, pairs]``."""
    first, second = (seen.x[..., lanes].double() for lanes in seen.lanes)
    return torch.hypot(first, second).mean(dim=(0, 2)).cpu()


def frequencies(seen: Turning) -> tuple[float, ...]:
    """Radians a token by which each pair turns, read off the tables of consecutive tokens.

    The angle between tokens 1 apart is known but for whole turns, and tells how many turns lie
    between tokens 2 apart, these 4, and so on; the farthest give the digits. A pair of frequency
    above π is taken for a slower one.
    """
    rows = [t.double().cpu().flatten(0, -3)[0] for t in (seen.cos, seen.sin)]
    angles = torch.atan2(rows[1], rows[0])
    last = len(angles) - 1
    found = torch.zeros_like(angles[0])
    steps = [2**n for n in range(last.bit_length())]
    for apart in [*(n for n in steps if n < last), last] if last else []:
        missed = angles[apart] - angles[0] - apart * found
        found = found + (missed - 2 * math.pi * torch.round(missed / (2 * math.pi))) / apart
    return tuple(float(f"{f:.{DIGITS}g}") for f in found.abs().tolist())


def mean(passes: Sequence[Sequence[Attention]]) -> tuple[Attention, ...]:
    """The norms of several passes through one model, averaged."""
    return tuple(
        Attention(
            one[0].layer,
            one[0].part,
            torch.stack([a.q for a in one]).mean(0),
            None
            if one[0].k is None
            else torch.stack([a.k for a in one if a.k is not None]).mean(0),
            one[0].frequencies,
        )
        for one in zip(*passes, strict=True)
    )
