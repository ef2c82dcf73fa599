r"""Any encoding with random positions in place of 0 … T − 1.

.. math:: E'(t) = E(s_t), \qquad s_0 < s_1 < \dots < s_{T-1} \text{ drawn from } [0, L)

The token at index t gets the position s_t of a sorted draw without replacement
(:func:`ropewalk.positions.randomized`), so that training on short texts shows the encoding of every
position, and of every distance, that a text of L tokens will need.

Nothing is drawn in a call: the draw is a constant of the module until ``resample()`` replaces it
(:class:`ropewalk.encodings.draws.Randomized`), so q and k share it, results repeat, and compiled
code runs on without another graph.
Draw before each batch, in training *and* in evaluation, for as many tokens as the batch has: the
authors' code does the same in both, and fewer tokens than the draw would see low positions only.
Under DistributedDataParallel the ranks take the draw of the first, as they do with any buffer.

Where rows of a batch should differ, leave the wrapper and give the base encoding
``ropewalk.positions.randomized(tokens, limit, batch=…)``.

Source: Randomized Positional Encodings Boost Length Generalization of Transformers (Ruoss et al.,
2023), §3 and the authors' code. Confirmed in that code: positions lie in [0, L) with L = 2048, are
shared by the rows of a batch and by q and k, and are drawn anew in evaluation. For rotary every
layer draws its own there; give each layer a wrapper of its own for that. For ALiBi it draws
*distances*, one for each |i − j|; here positions are drawn and distances follow from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ropewalk.core import Additive, Bias, Block, Contextual, Encoding, Rotary, token_positions
from ropewalk.encodings.draws import Place, Randomized, draw
from ropewalk.spectra.arguments import check_int


class RandomizedAdditive(Additive, Randomized):
    """Codes of drawn positions, as those of a text of ``limit`` tokens."""

    def __init__(self, base: Additive, drawn: Tensor, limit: int) -> None:
        super().__init__(base, drawn, limit)
        self.dim = base.dim

    def encode(
        self,
        positions: Tensor,
        *,
        length: int | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """``[..., T, dim]``, the base's codes of the drawn positions."""
        return self.base.encode(self._at(positions), length=self.limit, dtype=dtype)

    def reference(self, position: Place, length: int | None = None) -> list[float]:
        """The code of one token index."""
        return self.base.reference(self._place(position), self.limit)


class RandomizedRotary(Rotary, Randomized):
    """q and k transformed for drawn positions."""

    def __init__(self, base: Rotary, drawn: Tensor, limit: int) -> None:
        super().__init__(base, drawn, limit)
        self.head_dim, self.attention_factor = base.head_dim, base.attention_factor
        self.heads = getattr(getattr(base, "spectrum", None), "heads", None)

    @property
    def encoded_dim(self) -> int:
        """That of the base."""
        return self.base.encoded_dim

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` as the base transforms it."""
        return self.base.encode_q(q, self._at(token_positions(positions, offset, q, self.axes)))

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]`` as the base transforms it."""
        return self.base.encode_k(k, self._at(token_positions(positions, offset, k, self.axes)))

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        *,
        offset: int | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """q and k transformed for the same tokens."""
        return (
            self.encode_q(q, positions, offset=offset),
            self.encode_k(k, positions, offset=offset),
        )

    def reference(self, x: Sequence[float], position: Place) -> list[float]:
        """One head vector, as q, at one token index."""
        return self.base.reference(x, self._place(position))

    def reference_k(self, x: Sequence[float], position: Place) -> list[float]:
        """One head vector, as k, at one token index."""
        oracle = getattr(self.base, "reference_k", self.base.reference)
        return oracle(x, self._place(position))


class RandomizedBias(Bias, Randomized):
    """The bias between drawn positions."""

    def __init__(self, base: Bias, drawn: Tensor, limit: int) -> None:
        super().__init__(base, drawn, limit)
        self.heads = base.heads

    def bias(
        self, q_positions: Tensor, kv_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """``[..., heads, q_tokens, kv_tokens]`` of the base."""
        q, k = self._at(q_positions, "q_positions"), self._at(kv_positions, "kv_positions")
        return self.base.bias(q, k, dtype)

    def reference(self, head: int, q_position: Any, k_position: Any) -> float:
        """One bias between two token indices."""
        return self.base.reference(head, self._place(q_position), self._place(k_position))


class RandomizedContextual(Contextual, Randomized):
    """A contextual encoding between drawn positions."""

    def __init__(self, base: Contextual, drawn: Tensor, limit: int) -> None:
        super().__init__(base, drawn, limit)
        self.content_dim = base.content_dim
        for size in ("heads", "head_dim"):
            if hasattr(base, size):
                setattr(self, size, getattr(base, size))

    def bias(self, block: Block) -> Tensor:
        """The bias of the base, ``[..., H, q_tokens, kv_tokens]``."""
        return self.base.bias(self._drawn(block))

    def logits(self, block: Block) -> Tensor:
        """The logits of the base, ``[..., H, q_tokens, kv_tokens]``."""
        return self.base.logits(self._drawn(block))

    def values(self, weights: Tensor, block: Block) -> Tensor | None:
        """What the base adds to the output."""
        return self.base.values(weights, self._drawn(block))

    def read(self, content: Tensor) -> Any:
        """The base for these hidden states, with the same draw."""
        return _wrapped(self.base.read(content), self.drawn, self.limit)

    def _drawn(self, block: Block) -> Block:
        return replace(
            block,
            q_positions=self._at(block.q_positions, "q_positions"),
            kv_positions=self._at(block.kv_positions, "kv_positions"),
        )


_KINDS: tuple[tuple[type[Encoding], Any], ...] = (
    (Additive, RandomizedAdditive),
    (Rotary, RandomizedRotary),
    (Bias, RandomizedBias),
    (Contextual, RandomizedContextual),
)


def randomized(encoding: Encoding, tokens: int, limit: int = 2048, *, seed: int = 0) -> Any:
    """``encoding`` with random positions: an encoding of the same family; see the module.

    Args:
        encoding: any; with several axes each gets a draw of its own.
        tokens: token indices 0 … tokens − 1 are served, until ``resample(tokens)``.
        limit: positions lie in [0, limit); the longest text there will be.
        seed: of the first draw.

    Raises:
        TypeError: no encoding, or a count that is no int.
        ValueError: more tokens than positions, or more positions than the encoding serves.

    Example:
        >>> rope = randomized(RoPE(64), tokens=40)
        >>> for batch in batches:
        ...     rope.resample(batch.shape[1])  # then attend(q, k, v, rope)
    """
    if not isinstance(encoding, Encoding):
        raise TypeError(
            f"encoding must be an Encoding, got {type(encoding).__name__}; ropewalk.make(name, …) "
            "builds one"
        )
    check_int("seed", seed, at_least=-(1 << 63), at_most=(1 << 63) - 1)
    chance = torch.Generator(device="cpu").manual_seed(seed)
    return _wrapped(encoding, draw(tokens, limit, encoding.axes, chance), limit)


def _wrapped(encoding: Encoding, drawn: Tensor, limit: int) -> Any:
    """``encoding`` with this draw, in the wrapper of its family."""
    kind = next((kind for family, kind in _KINDS if isinstance(encoding, family)), None)
    if kind is None:
        raise TypeError(f"{type(encoding).__name__} is of no family: additive, rotary, bias, …")
    return kind(encoding, drawn, limit)
