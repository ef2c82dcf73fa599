"""A way to rotate: what every peer gives, each in its own arrays."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.bench.problem import exact_tables
from ropewalk.spectra import Spectrum


class Cannot(Exception):
    """This form does not offer what is asked; the text says what."""


class Rotor:
    """Rotation at fixed positions of tensors of one dtype; a subclass gives what its library has.

    Args:
        spectrum: frequencies and lanes.
        positions: int64 ``[tokens]``, neighbours, or ``[tokens, axes]``.
        dtype: of what is rotated.

    Raises:
        Cannot: the library does not turn these lanes, or not in this dtype.
    """

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        self.spectrum, self.positions, self.dtype = spectrum, positions, dtype

    def take(self, x: Tensor) -> Any:
        """x as the library's own array, in the order of dimensions that it prefers."""
        return x

    def give(self, y: Any) -> Tensor:
        """The library's array as a tensor ``[batch, heads, tokens, head_dim]``."""
        return y

    def fresh(self, x: Any) -> Any:
        """The result in fresh memory."""
        raise Cannot("no such mode")

    def into(self, x: Any, out: Any) -> Any:
        """The result in ``out``, returned."""
        raise Cannot("writes into no memory that is there")

    def in_place(self, x: Any) -> Any:
        """The result in x; returned, and x is not used again."""
        raise Cannot("does not work in place")

    def trained(self, x: Any, g: Any) -> tuple[Any, Any]:
        """The result, and the gradient of x where that of the result is g."""
        raise Cannot("has no backward")

    def pair(self, q: Any, k: Any) -> tuple[Any, Any]:
        """Two results in fresh memory."""
        return self.fresh(q), self.fresh(k)

    def pair_in_place(self, q: Any, k: Any) -> tuple[Any, Any]:
        """Two results in q and k."""
        return self.in_place(q), self.in_place(k)

    def copies(self, mode: str) -> bool:
        """Whether a fresh result is copied to where this mode wants it."""
        return False

    def tables(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Exact cos and sin ``[tokens, pairs]``, rounded to ``dtype``."""
        cosine, sine = exact_tables(self.spectrum, self.positions)
        return cosine.to(dtype), sine.to(dtype)

    def require_layout(self, *layouts: str, partial: bool = False) -> None:
        """Refuse other layouts, and pass-through lanes unless ``partial``.

        Raises:
            Cannot: the spectrum has another layout.
        """
        spectrum = self.spectrum
        if spectrum.layout not in layouts:
            raise Cannot(f"{' and '.join(layouts)} layout only")
        if spectrum.rotary_dim != spectrum.head_dim and not partial:
            raise Cannot("turns all lanes or none")

    def require_one_axis(self) -> None:
        """Refuse several axes, for forms that make angles of one position themselves.

        Raises:
            Cannot: the spectrum has several.
        """
        if self.spectrum.axes != 1:
            raise Cannot("one axis only")


class TorchRotor(Rotor):
    """A form in PyTorch: :meth:`turn` is all it needs.

    Where it has no ``out=`` and nothing in place, its fresh result is copied there, as its users
    have to.
    """

    def turn(self, x: Tensor) -> Tensor:
        """x turned, differentiable."""
        raise NotImplementedError

    def fresh(self, x: Tensor) -> Tensor:
        return self.turn(x)

    def into(self, x: Tensor, out: Tensor) -> Tensor:
        return out.copy_(self.fresh(x))

    def in_place(self, x: Tensor) -> Tensor:
        return x.copy_(self.fresh(x))

    def trained(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        y = self.turn(x)
        return y, torch.autograd.grad(y, x, g)[0]

    def pair_in_place(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if type(self).in_place is not TorchRotor.in_place:
            return self.in_place(q), self.in_place(k)
        one, other = self.pair(q, k)
        return q.copy_(one), k.copy_(other)

    def copies(self, mode: str) -> bool:
        own = type(self)
        if mode == "out":
            return own.into is TorchRotor.into
        if mode == "in-place":
            return own.in_place is TorchRotor.in_place
        inherited = own.pair_in_place is TorchRotor.pair_in_place
        return mode == "decode-in-place" and inherited and own.in_place is TorchRotor.in_place
