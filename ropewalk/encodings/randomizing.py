r"""Any encoding with random positions in place of 0 … T − 1.

.. math:: E'(t) = E(s_t), \qquad s_0 < s_1 < \dots < s_{T-1} \text{ drawn from } [0, L)

The token at index t gets the position s_t of a sorted draw without replacement
(:func:`ropewalk.positions.randomized`), so that training on short texts shows the encoding of every
position, and of every distance, that a text of L tokens will need.

Nothing is drawn in a call: the draw is a constant of the module until :meth:`Randomized.resample`
replaces it, so q and k share it, results repeat, and compiled code runs on without another graph.
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
from typing import Any, TypeVar

import torch
from torch import Tensor

from ropewalk import positions as builders
from ropewalk.core import (
    Additive,
    Bias,
    Contextual,
    Encoding,
    Rotary,
    integer_positions,
    token_positions,
)
from ropewalk.encodings.bounds import require_inside
from ropewalk.kernels.opaque import opaque

Place = int | Sequence[int]
Self = TypeVar("Self", bound="Randomized")


def _empty(positions: Tensor, sample: Tensor) -> Tensor:
    return positions.new_empty(positions.shape)


def _batched(op):
    def rule(info, in_dims, positions, sample):
        at_positions, at_sample = in_dims
        if at_sample is None:
            return op(positions.movedim(at_positions, 0), sample), 0
        rows = [
            op(
                positions if at_positions is None else positions.select(at_positions, i),
                sample.select(at_sample, i),
            )
            for i in range(info.batch_size)
        ]
        return torch.stack(rows), 0

    return rule


@opaque("sampled(Tensor positions, Tensor sample) -> Tensor", fake=_empty, vmap=_batched)
def _sampled(positions: Tensor, sample: Tensor) -> Tensor:
    """sample[axis, p] for each position p of each axis; in the graph, so that it checks bounds."""
    axes, tokens = sample.shape
    require_inside(
        positions,
        tokens,
        f"this draw of {tokens} random positions",
        "; encoding.resample(tokens) draws for as many tokens as the text has",
    )
    if axes == 1:
        return sample[0][positions].contiguous()
    return torch.stack([sample[a][positions[..., a]] for a in range(axes)], dim=-1)


class Randomized(Encoding):
    """An encoding whose positions are looked up in a random draw; see the module.

    Args:
        base: the encoding that gets the drawn positions.
        drawn: int64 ``[tokens]``, rising in each row, or ``[axes, tokens]``.
        limit: positions lie in [0, limit).

    Attributes:
        sample: the draw ``[axes, tokens]`` on the device of the module, which no checkpoint holds.
    """

    sample: Tensor

    def __init__(self, base: Any, drawn: Tensor, limit: int) -> None:
        super().__init__()
        served = getattr(base, "positions", None)
        if isinstance(served, int) and limit > served:
            raise ValueError(
                f"limit={limit} passes the {served} positions that {type(base).__name__} serves; "
                "give it a longer table or lower limit"
            )
        self.base, self.limit, self.axes = base, limit, base.axes
        self.drawn = _checked(drawn, self.axes, limit)
        self.register_derived()

    @property
    def positions(self) -> int:
        """How many tokens the draw serves: indices 0 … positions − 1."""
        return self.drawn.shape[-1]

    def resample(
        self: Self, tokens: int | None = None, *, generator: torch.Generator | None = None
    ) -> Self:
        """Draw anew, for ``tokens`` tokens (as many as before if None); returns the encoding.

        Call it between batches, not in compiled code. The memory of ``sample`` stays the same where
        the number of tokens does, as CUDA graphs need.

        Raises:
            TypeError, ValueError: as in :func:`ropewalk.positions.randomized`.
        """
        count = self.positions if tokens is None else tokens
        self.drawn = _draw(count, self.limit, self.axes, generator)
        if self.sample.shape == self.drawn.shape and not self.sample.is_meta:
            self.sample.copy_(self.drawn)
        else:
            self.sample = self.drawn.to(self.sample.device)
        return self

    def with_positions(self: Self, drawn: Tensor) -> Self:
        """The same encoding, its parameters shared, with these positions; this one stays as it is.

        Args:
            drawn: int64 ``[tokens]`` or ``[axes, tokens]``, rising, in [0, limit).
        """
        return type(self)(self.base, drawn, self.limit).train(self.training)

    def reset_parameters(self) -> None:
        """Initialise the base anew; the draw stays."""
        getattr(self.base, "reset_parameters", lambda: None)()
        super().reset_parameters()

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The draw, on ``device``."""
        return {"sample": self.drawn.to(device or torch.get_default_device(), copy=True)}

    def _at(self, positions: Tensor, name: str = "positions") -> Tensor:
        where = integer_positions(positions, self.axes, name)
        here = self.sample
        return _sampled(where, here if here.device == where.device else here.to(where.device))

    def _place(self, position: Place) -> Any:
        """The drawn position of one token index, for ``reference``."""
        if isinstance(position, int):
            return int(self.drawn[0, position])
        return [int(self.drawn[a, p]) for a, p in enumerate(position)]

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"tokens={self.positions}, limit={self.limit}"


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
    """A contextual bias between drawn positions."""

    def bias(
        self,
        q: Tensor,
        k: Tensor,
        q_positions: Tensor,
        kv_positions: Tensor,
        allowed: Tensor | None,
    ) -> Tensor:
        """``[..., H, q_tokens, kv_tokens]`` of the base."""
        where_q, where_k = self._at(q_positions, "q_positions"), self._at(kv_positions)
        return self.base.bias(q, k, where_q, where_k, allowed)


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
    for family, kind in _KINDS:
        if isinstance(encoding, family):
            chance = torch.Generator(device="cpu").manual_seed(seed)
            return kind(encoding, _draw(tokens, limit, encoding.axes, chance), limit)
    raise TypeError(
        f"encoding must be an Encoding, got {type(encoding).__name__}; ropewalk.make(name, …) "
        "builds one"
    )


def _draw(tokens: int, limit: int, axes: int, generator: torch.Generator | None) -> Tensor:
    if tokens == 0:
        raise ValueError("tokens=0 must be at least 1: an encoding serves some token")
    return builders.randomized(tokens, limit, batch=axes, generator=generator, device="cpu")


def _checked(drawn: Tensor, axes: int, limit: int) -> Tensor:
    """A draw given by hand as int64 ``[axes, tokens]`` on the CPU."""
    rows = integer_positions(drawn, name="drawn").to("cpu")
    rows = rows[None] if rows.dim() == 1 and axes == 1 else rows
    if rows.dim() != 2 or rows.shape[0] != axes or not rows.shape[1]:
        wanted = "[tokens]" if axes == 1 else f"[{axes}, tokens]"
        raise ValueError(f"drawn has shape {tuple(drawn.shape)}; this encoding takes {wanted}")
    if bool((rows.diff(dim=-1) <= 0).any()) or rows.min() < 0 or rows.max() >= limit:
        raise ValueError(f"drawn must rise, each row from 0 or more to less than limit={limit}")
    return rows
