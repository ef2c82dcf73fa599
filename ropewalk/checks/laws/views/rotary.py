"""What a rotary encoding makes of q and k."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ropewalk.checks.laws.views.base import HEADS, KV_HEADS, Outputs, View, by_row
from ropewalk.checks.probes import heads_of
from ropewalk.core import Rotary


class RotaryView(View):
    """q and k transformed."""

    encoding: Rotary

    def inputs(
        self, rows: int, tokens: int, dtype: torch.dtype = torch.float32, seed: int = 0
    ) -> list[Tensor]:
        """q ``[rows, heads, tokens, head_dim]``, and k with half as many heads.

        An encoding that has heads of its own has as many as k.
        """
        dim, own = self.encoding.head_dim, heads_of(self.encoding)
        kv_heads = own if own > 1 else KV_HEADS
        heads = HEADS // KV_HEADS * kv_heads
        return [
            self._random(rows, heads, tokens, dim, dtype=dtype, seed=seed),
            self._random(rows, kv_heads, tokens, dim, dtype=dtype, seed=seed + 1),
        ]

    def raw(
        self,
        inputs: Sequence[Tensor],
        positions: Tensor | None = None,
        offset: int | Tensor | None = None,
    ) -> Outputs:
        """``encode_q`` and ``encode_k``."""
        q, k = inputs
        if self.encoding.axes > 1:
            positions, offset = self.where(q, positions, offset), None
        return {
            "encode_q": self.encoding.encode_q(q, positions, offset=offset),
            "encode_k": self.encoding.encode_k(k, positions, offset=offset),
        }

    def rank(self, name: str) -> int:
        """``[rows, heads, tokens, head_dim]``."""
        return 4

    def expected(self, inputs: Sequence[Tensor], positions: Tensor) -> Outputs:
        """One head vector at a time; k by ``reference_k`` where the encoding has one.

        A reference of an encoding with heads of its own takes ``head`` too, that of k.
        """
        oracle_q = self.encoding.reference
        oracle_k = getattr(self.encoding, "reference_k", oracle_q)
        q, k = (x.detach().to("cpu", torch.float64) for x in inputs)
        rows = by_row(positions, q.shape[0], self.encoding.axes)

        def turned(x: Tensor, oracle: Callable) -> Tensor:
            group = x.shape[-3] // k.shape[-3]
            by_head = "head" in inspect.signature(oracle).parameters
            vectors = [
                [
                    [
                        oracle(v, p, **({"head": h // group} if by_head else {}))
                        for v, p in zip(head, row, strict=True)
                    ]
                    for h, head in enumerate(heads)
                ]
                for heads, row in zip(x.tolist(), rows, strict=True)
            ]
            return torch.tensor(vectors, dtype=torch.float64, device=inputs[0].device)

        return {"encode_q": turned(q, oracle_q), "encode_k": turned(k, oracle_k)}
