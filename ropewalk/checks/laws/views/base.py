"""What a view of an encoding is, whatever its family.

A view knows four things of an encoding: which inputs it takes, how its operations are called, which
dimensions of their results count tokens, and what the literal reference says they should give.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ropewalk.core import Encoding

Outputs = dict[str, Tensor]
"""The result of each operation by name, ``[rows, …]``."""

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16


class View(ABC):
    """What the laws need of an encoding; ``rows`` are batch rows."""

    token_dims: tuple[int, ...] = (-2,)
    """Dimensions of every result that count tokens."""

    input_token_dim = -2
    """The dimension of every input that counts tokens."""

    halves = True
    """Whether the operations take bfloat16 and float16."""

    reads_rows = True
    """Whether results have the batch dimensions of the inputs."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding

    @abstractmethod
    def inputs(
        self, rows: int, tokens: int, dtype: torch.dtype = torch.float32, seed: int = 0
    ) -> list[Tensor]:
        """Random inputs, each ``[rows, …]``; the first one tells rows, tokens and dtype."""

    @abstractmethod
    def raw(
        self,
        inputs: Sequence[Tensor],
        positions: Tensor | None = None,
        offset: int | Tensor | None = None,
    ) -> Outputs:
        """The results as the operations give them."""

    @abstractmethod
    def expected(self, inputs: Sequence[Tensor], positions: Tensor) -> Outputs:
        """The results in float64 by the literal reference, ``[rows, …]``."""

    def scale(self, expected: Tensor) -> Tensor:
        """The size by which errors are judged: the largest lane of each vector, or of all up to 1.

        A vector may be small by chance, as sin p is near a multiple of π.
        """
        size = expected.abs()
        return size.amax(-1, keepdim=True).clamp_min(min(1.0, size.max().item()))

    def apply(
        self,
        inputs: Sequence[Tensor],
        positions: Tensor | None = None,
        offset: int | Tensor | None = None,
    ) -> Outputs:
        """The results with their batch rows, also where one row serves all."""
        rows = inputs[0].shape[0]
        results = self.raw(inputs, positions, offset)
        return {name: self._with_rows(name, result, rows) for name, result in results.items()}

    @abstractmethod
    def rank(self, name: str) -> int:
        """Dimensions of a result of operation ``name``, batch rows included."""

    def _with_rows(self, name: str, result: Tensor, rows: int) -> Tensor:
        return result.expand(rows, *result.shape) if result.dim() < self.rank(name) else result

    def place(self, start: int | Tensor, tokens: int) -> Tensor:
        """Consecutive positions from ``start`` (an int, or ``[rows]``), each axis 5 further on."""
        line = torch.arange(tokens, device=self.device)
        line = line + (start[:, None] if isinstance(start, Tensor) else start)
        return self.with_axes(line, lambda axis, column: column + 5 * axis)

    def scatter(self, samples: Sequence[int]) -> Tensor:
        """The given positions as ``[tokens]``, each axis rolled by one more."""
        line = torch.tensor(samples, dtype=torch.int64, device=self.device)
        return self.with_axes(line, lambda axis, column: column.roll(axis, -1))

    def with_axes(self, line: Tensor, column: Callable[[int, Tensor], Tensor]) -> Tensor:
        """``line`` with a last dimension of axes made by ``column`` if there are several."""
        axes = self.encoding.axes
        return line if axes == 1 else torch.stack([column(a, line) for a in range(axes)], dim=-1)

    @property
    def device(self) -> torch.device:
        """Where the encoding's tensors are; the CPU if it has none."""
        tensors = [*self.encoding.parameters(), *self.encoding.buffers()]
        return tensors[0].device if tensors else torch.device(self.home)

    home: str = "cpu"
    """The device of an encoding without tensors."""

    def _random(self, *shape: int, dtype: torch.dtype, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        values = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return values.to(self.device, dtype)

    def where(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None, dim: int = -2
    ) -> Tensor:
        """``positions``, or those that None and ``offset`` stand for."""
        if positions is not None:
            return positions
        return self.place(0 if offset is None else offset, x.shape[dim])


def by_row(positions: Tensor, rows: int, axes: int) -> list[list]:
    """Positions as nested lists ``[rows][tokens]`` of an int, or of a list of axes."""
    single = positions.dim() == (1 if axes == 1 else 2)
    return (positions.expand(rows, *positions.shape) if single else positions).tolist()
