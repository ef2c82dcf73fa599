"""What a contextual encoding makes of the logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.checks.laws.views.base import HEAD_DIM, HEADS, Outputs, View
from ropewalk.checks.probes import logits, positional
from ropewalk.core import Block, Contextual


class ContextualView(View):
    """The bias under a causal mask, or logits as a whole; its reference is itself, by rows."""

    token_dims = (-2, -1)
    halves = False
    encoding: Contextual

    def inputs(
        self, rows: int, tokens: int, dtype: torch.dtype = torch.float32, seed: int = 0
    ) -> list[Tensor]:
        """q and k ``[rows, heads, tokens, head_dim]``, and hidden states where they are read."""
        heads = getattr(self.encoding, "heads", HEADS)
        dim = getattr(self.encoding, "head_dim", HEAD_DIM)
        shapes: list[tuple[int, ...]] = [(rows, heads, tokens, dim)] * 2
        if self.encoding.content_dim is not None:
            shapes.append((rows, tokens, self.encoding.content_dim))
        return [self._random(*s, dtype=dtype, seed=seed + i) for i, s in enumerate(shapes)]

    def raw(
        self,
        inputs: Sequence[Tensor],
        positions: Tensor | None = None,
        offset: int | Tensor | None = None,
    ) -> Outputs:
        """``bias`` (``logits`` where they are qᵀ T k) where the mask allows it, 0 elsewhere.

        Autocast is off, as in ``attend``.
        """
        where = self.where(inputs[0], positions, offset)
        allowed = _causal(inputs[0].shape[-2], inputs[0].device)
        with torch.autocast(inputs[0].device.type, enabled=False):
            found = self._asked(inputs, where, where, allowed, 0)
        return {self._name: found.masked_fill(~allowed, 0.0)}

    @property
    def _name(self) -> str:
        return "logits" if self.encoding.bilinear else "bias"

    def rank(self, name: str) -> int:
        """``[rows, heads, tokens, tokens]``."""
        return 4

    def scale(self, expected: Tensor) -> Tensor:
        """The largest of all: a logit is a sum of many products, and may be small by chance."""
        return expected.abs().max() if expected.numel() else expected.new_zeros(())

    def expected(self, inputs: Sequence[Tensor], positions: Tensor) -> Outputs:
        """Every query alone against all keys, in float64, as ``attend`` does it by blocks."""
        q, *others = (x.to(torch.float64) for x in inputs)
        allowed = _causal(q.shape[-2], q.device)
        dim = positions.dim() - (1 if self.encoding.axes == 1 else 2)
        lines = [
            self._asked(
                [q.narrow(-2, i, 1), *others],
                positions.narrow(dim, i, 1),
                positions,
                allowed[i : i + 1],
                i,
            ).masked_fill(~allowed[i : i + 1], 0.0)
            for i in range(q.shape[-2])
        ]
        return {self._name: torch.cat(lines, dim=-2)}

    def _asked(
        self,
        inputs: Sequence[Tensor],
        queries: Tensor,
        keys: Tensor,
        allowed: Tensor,
        first: int,
    ) -> Tensor:
        q, k, *content = inputs
        block = Block(q, k, queries, keys, allowed, 1.0, first, True)
        if self.encoding.bilinear:
            return logits(self.encoding.read(*content) if content else self.encoding, block)
        return positional(self.encoding, block, *content)


def _causal(tokens: int, device: torch.device) -> Tensor:
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()
