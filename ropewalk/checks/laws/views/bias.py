"""What a bias adds to the logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.checks.laws.views.base import Outputs, View, by_row
from ropewalk.core import Bias


class BiasView(View):
    """The bias of a run of tokens against itself."""

    token_dims = (-2, -1)
    input_token_dim = -1
    reads_rows = False
    encoding: Bias

    def inputs(
        self, rows: int, tokens: int, dtype: torch.dtype = torch.float32, seed: int = 0
    ) -> list[Tensor]:
        """A carrier ``[rows, tokens]`` of the sizes and the dtype; its values are not read."""
        return [torch.zeros(rows, tokens, dtype=dtype, device=self.device)]

    def raw(
        self,
        inputs: Sequence[Tensor],
        positions: Tensor | None = None,
        offset: int | Tensor | None = None,
    ) -> Outputs:
        """``bias``."""
        where = self.where(inputs[0], positions, offset, dim=-1)
        return {"bias": self.encoding.bias(where, where, inputs[0].dtype)}

    def rank(self, name: str) -> int:
        """``[rows, heads, tokens, tokens]``."""
        return 4

    def scale(self, expected: Tensor) -> Tensor:
        """Each bias by itself."""
        return expected.abs()

    def expected(self, inputs: Sequence[Tensor], positions: Tensor) -> Outputs:
        """One number at a time."""
        encoding = self.encoding
        rows = by_row(positions, inputs[0].shape[0], encoding.axes)
        numbers = [
            [
                [[encoding.reference(h, i, j) for j in row] for i in row]
                for h in range(encoding.heads)
            ]
            for row in rows
        ]
        return {"bias": torch.tensor(numbers, dtype=torch.float64, device=inputs[0].device)}
