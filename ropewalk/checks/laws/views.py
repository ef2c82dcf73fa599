"""One view of every family, so that a law of the contract is written once.

A view knows four things of an encoding: which inputs it takes, how its operations are called, which
dimensions of their results count tokens, and what the literal reference says they should give.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ropewalk.checks.probes import heads_of, logits, positional
from ropewalk.core import Additive, Bias, Block, Contextual, Encoding, Rotary

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


def _by_row(positions: Tensor, rows: int, axes: int) -> list[list]:
    """Positions as nested lists ``[rows][tokens]`` of an int, or of a list of axes."""
    single = positions.dim() == (1 if axes == 1 else 2)
    return (positions.expand(rows, *positions.shape) if single else positions).tolist()


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
        rows = _by_row(positions, x.shape[0], self.encoding.axes)
        codes = torch.tensor(
            [[self.encoding.reference(p, length) for p in row] for row in rows],
            dtype=torch.float64,
            device=x.device,
        )
        return {"forward": x.to(torch.float64) + codes, "encode": codes}


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
        rows = _by_row(positions, q.shape[0], self.encoding.axes)

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
        rows = _by_row(positions, inputs[0].shape[0], encoding.axes)
        numbers = [
            [
                [[encoding.reference(h, i, j) for j in row] for i in row]
                for h in range(encoding.heads)
            ]
            for row in rows
        ]
        return {"bias": torch.tensor(numbers, dtype=torch.float64, device=inputs[0].device)}


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


def view(encoding: Encoding, home: str = "cpu") -> View:
    """The view of the family of ``encoding``.

    Raises:
        TypeError: it belongs to none of the four families.
    """
    families = (
        (Additive, AdditiveView),
        (Rotary, RotaryView),
        (Bias, BiasView),
        (Contextual, ContextualView),
    )
    for family, kind in families:
        if isinstance(encoding, family):
            made = kind(encoding)
            made.home = home
            return made
    raise TypeError(
        f"create() returned {type(encoding).__name__}, which is none of ropewalk's families: "
        "derive it from ropewalk.Additive, Rotary, Bias or Contextual"
    )
