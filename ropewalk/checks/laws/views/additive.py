"""What an additive encoding adds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.checks.laws.views.base import Outputs, View, by_row
from ropewalk.core import Additive


class AdditiveView(View):
    """x + E(p) and E(p) itself."""

    encoding: Additive

    def inputs(
        self, rows: int, tokens: int, dtype: torch.dtype = torch.float32, seed: int = 0
    ) -> list[Tensor]:
        """x ``[rows, tokens, dim]``."""
        return [self._random(rows, tokens, self.encoding.dim, dtype=dtype, seed=seed)]

    def raw(
        self,
        inputs: Sequence[Tensor],
        positions: Tensor | None = None,
        offset: int | Tensor | None = None,
    ) -> Outputs:
        """``forward`` and ``encode``."""
        (x,) = inputs
        where = self.where(x, positions, offset)
        if self.encoding.axes > 1:
            positions, offset = where, None
        return {
            "forward": self.encoding(x, positions, offset=offset),
            "encode": self.encoding.encode(where, dtype=x.dtype),
        }

    def rank(self, name: str) -> int:
        """``[rows, tokens, dim]``."""
        return 3

    def expected(self, inputs: Sequence[Tensor], positions: Tensor) -> Outputs:
        """Codes of one position at a time."""
        (x,) = inputs
        length = max(int(positions.max()) + 1, 1)
        rows = by_row(positions, x.shape[0], self.encoding.axes)
        codes = torch.tensor(
            [[self.encoding.reference(p, length) for p in row] for row in rows],
            dtype=torch.float64,
            device=x.device,
        )
        return {"forward": x.to(torch.float64) + codes, "encode": codes}
