r"""Logits that grow with the length a query sees: q is scaled by its position.

.. math:: q_p \to s(p)\,q_p, \qquad
   s_{\text{Llama 4}}(p) = 1 + r \ln\!\bigl(1 + \lfloor (p + 1)/f \rfloor\bigr), \qquad
   s_{\text{SWAN}}(p) = \ln(a + n),\; n = p + 1

Softmax over more keys is flatter; a larger logit scale sharpens it again. Llama 4 scales the layers
without position (f = 8192 tokens, r = 0.1, p from 0); SWAN its global layers, by the logarithm of
the n tokens that the query sees.

Sources: Llama 4 (Meta, 2025) after Scalable-Softmax Is Superior for Attention (Nakanishi, 2025);
SWAN-GPT (Puvvada et al., 2025). Confirmed: Llama 4's against Llama4TextAttention of transformers
(tests/test_plan.py). Not confirmed: which a SWAN fits, so it has no default here; and whether its n
is p + 1 or the length of the whole sequence, which are the same for the last query.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.core import Encoding, Rotary, token_positions, wide_dtype
from ropewalk.spectra.arguments import FARTHEST, check_int, check_number


class LogitScale(ABC):
    """A factor for the logits of a query by its position; positions below 0 count as 0."""

    @abstractmethod
    def at(self, positions: Tensor) -> Tensor:
        """float64 factors of int64 positions, in their shape."""

    @abstractmethod
    def reference(self, position: int) -> float:
        """The factor at one position, by the standard library."""


@dataclass(frozen=True)
class Llama4Scale(LogitScale):
    """1 + rate · ln(1 + ⌊(p + 1)/floor⌋).

    Args:
        floor: tokens of a step, at least 1; ``floor_scale`` of transformers.
        rate: at least 0; ``attn_scale`` of transformers.
    """

    floor: int = 8192
    rate: float = 0.1

    def __post_init__(self) -> None:
        check_int("floor", self.floor, at_least=1, at_most=FARTHEST)
        check_number("rate", self.rate, at_least=0)

    def at(self, positions: Tensor) -> Tensor:
        """float64 factors of int64 positions, in their shape."""
        seen = positions.clamp(0, 2**63 - 2) + 1  # the last int64 has none after it
        steps = seen.div(self.floor, rounding_mode="floor")
        return 1 + self.rate * steps.to(torch.float64).log1p()

    def reference(self, position: int) -> float:
        """The factor at one position, by the standard library."""
        return 1 + self.rate * math.log(1 + (max(position, 0) + 1) // self.floor)


@dataclass(frozen=True)
class LogScale(LogitScale):
    """ln(a + n), n = p + 1 the tokens that the query sees.

    Args:
        a: more than 0, so that the first query's factor is above 0.
    """

    a: float

    def __post_init__(self) -> None:
        check_number("a", self.a, above=0)

    def at(self, positions: Tensor) -> Tensor:
        """float64 factors of int64 positions, in their shape."""
        return positions.clamp_min(0).to(torch.float64).add(1 + self.a).log()

    def reference(self, position: int) -> float:
        """The factor at one position, by the standard library."""
        return math.log(self.a + max(position, 0) + 1)


class Tempered(Rotary):
    """Any rotary encoding of one axis, with q scaled by its position; k is as it was.

    Args:
        inner: the encoding.
        scale: the factor, such as :class:`Llama4Scale`.

    Raises:
        TypeError: ``inner`` is no rotary encoding, or ``scale`` no :class:`LogitScale`.
        ValueError: ``inner`` has several axes.
    """

    def __init__(self, inner: Encoding, scale: LogitScale) -> None:
        super().__init__()
        if not isinstance(inner, Rotary):
            raise TypeError(
                f"inner must be a rotary encoding, got {type(inner).__name__}; for no position "
                'give make("nope", …)'
            )
        if not isinstance(scale, LogitScale):
            raise TypeError(
                f"scale must be a LogitScale, got {type(scale).__name__}; Llama4Scale() is one"
            )
        if inner.axes != 1:
            raise ValueError(f"inner has axes={inner.axes}; a logit scale needs one axis")
        self.inner, self.scale = inner, scale

    @property
    def head_dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Width of one head."""
        return self.inner.head_dim

    @property
    def encoded_dim(self) -> int:
        """Width of encoded q and k."""
        return self.inner.encoded_dim

    @property
    def attention_factor(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the inner encoding, which the scale comes on top of."""
        return self.inner.attention_factor

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` encoded and scaled, rounded once."""
        where = token_positions(positions, offset, q, 1)
        wide = wide_dtype(q.dtype)
        factor = self.scale.at(where).to(wide).unsqueeze(-1)  # one for all lanes
        factor = factor if where.dim() == 1 else factor.unsqueeze(-3)  # and all heads
        encoded = self.inner.encode_q(q.to(wide), positions, offset=offset)
        return (encoded * factor).to(q.dtype)

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]`` as the inner encoding makes it."""
        return self.inner.encode_k(k, positions, offset=offset)

    def reference(
        self, x: Sequence[float], position: int | Sequence[int], *, head: int = 0
    ) -> list[float]:
        """One head vector of q by the inner reference, scaled."""
        where = position if isinstance(position, int) else position[0]
        factor = self.scale.reference(where)
        return [factor * value for value in self._inner("reference", x, position, head)]

    def reference_k(
        self, x: Sequence[float], position: int | Sequence[int], *, head: int = 0
    ) -> list[float]:
        """One head vector of k by the inner reference."""
        name = "reference_k" if hasattr(self.inner, "reference_k") else "reference"
        return self._inner(name, x, position, head)

    def _inner(
        self, name: str, x: Sequence[float], position: int | Sequence[int], head: int
    ) -> list[float]:
        oracle = getattr(self.inner, name)
        by_head = "head" in inspect.signature(oracle).parameters
        return oracle(x, position, **({"head": head} if by_head else {}))

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return repr(self.scale)
