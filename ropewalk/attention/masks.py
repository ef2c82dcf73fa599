"""Which keys a query may see: rules over token indices, aligned to the end of the keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """The rules of one call of attend.

    Query t stands at key index ``t + shift``. A query sees no later key if ``causal``, only keys
    fewer than ``window`` away, and only its own segment; a negative segment is padding.
    """

    q_tokens: int
    kv_tokens: int
    causal: bool
    window: int | None
    segments: Tensor | None

    @property
    def shift(self) -> int:
        """The key index of the first query."""
        return self.kv_tokens - self.q_tokens

    @property
    def plain(self) -> bool:
        """No rule but causality."""
        return self.window is None and self.segments is None

    @property
    def one_call(self) -> bool:
        """A kernel without a mask can do it: no rule, or causality over as many q as k."""
        square = self.q_tokens == self.kv_tokens
        return self.plain and (not self.causal or square or self.q_tokens == 1)

    def reach(self, start: int, stop: int) -> tuple[int, int]:
        """A range of keys that holds all that queries ``start`` … ``stop − 1`` may see."""
        first, last = 0, self.kv_tokens
        if self.causal:
            last = stop + self.shift
        if self.window is not None:
            low, high = start + self.shift - self.window + 1, stop + self.shift + self.window - 1
            first = _least(_most(0, low), self.kv_tokens)
            last = _most(first, _least(last, high))
        return first, last

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor | None:
        """:meth:`tile` of the queries ``start`` … ``stop − 1`` and all the keys."""
        return self.tile(start, stop, 0, self.kv_tokens, device)

    def tile(
        self, start: int, stop: int, first: int, last: int, device: torch.device
    ) -> Tensor | None:
        """True where allowed: ``[stop − start, last − first]`` or ``[batch, 1, …]``; None: all."""
        query = torch.arange(start + self.shift, stop + self.shift, device=device)[:, None]
        key = torch.arange(first, last, device=device)
        allowed: Tensor | None = None
        if self.causal:
            allowed = key <= query
        if self.window is not None:
            near = (query - key).abs() < min(self.window, self.kv_tokens + self.q_tokens)
            allowed = near if allowed is None else allowed & near
        if self.segments is not None:
            own = self.segments[..., start + self.shift : stop + self.shift, None]
            same = (own == self.segments[..., None, first:last]) & (own >= 0)
            same = same.unsqueeze(-3) if same.dim() == 3 else same
            allowed = same if allowed is None else allowed & same
        return allowed


def _least(a: int, b: int) -> int:
    """``min`` for the symbols of a traced graph too."""
    return torch.sym_min(a, b)  # pyright: ignore[reportReturnType]


def _most(a: int, b: int) -> int:
    """``max`` for the symbols of a traced graph too."""
    return torch.sym_max(a, b)  # pyright: ignore[reportReturnType]
