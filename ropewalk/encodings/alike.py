"""Rotary encodings that turn q and k alike, and can turn back."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from ropewalk.core import Rotary


class Alike(Rotary):
    """One orthogonal transform of a position for q and k.

    A subclass gives ``head_dim``, :meth:`turned` and ``reference``.
    """

    @abstractmethod
    def turned(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None, inverse: bool
    ) -> Tensor:
        """x ``[..., heads, T, head_dim]`` turned, or turned back."""

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` turned, H a multiple of the encoding's heads if it has any.

        Raises:
            TypeError, ValueError: q or positions do not fit.
        """
        return self.turned(q, positions, offset, False)

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]`` turned, as q is."""
        return self.turned(k, positions, offset, False)

    def undo(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """x turned back; it undoes :meth:`encode_k`, see :meth:`ropewalk.RoPE.undo`."""
        return self.turned(x, positions, offset, True)
