"""Neighbouring lanes as one complex number: the strongest plain form for interleaved float32."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.bench.rotor import TorchRotor
from ropewalk.spectra import Spectrum


class ComplexMultiply(TorchRotor):
    """x · (cos + i·sin), in float32 where the dtype has no complex kin."""

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        super().__init__(spectrum, positions, dtype)
        self.require_layout("interleaved")
        self.wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
        self.turns = torch.complex(*self.tables(self.wide))

    def turn(self, x: Tensor) -> Tensor:
        y = _as_complex(x.to(self.wide)) * self.turns
        return torch.view_as_real(y).flatten(-2).to(x.dtype)

    def into(self, x: Tensor, out: Tensor) -> Tensor:
        if x.dtype != self.wide:
            return super().into(x, out)
        torch.mul(_as_complex(x), self.turns, out=_as_complex(out))
        return out

    def in_place(self, x: Tensor) -> Tensor:
        if x.dtype != self.wide:
            return super().in_place(x)
        _as_complex(x).mul_(self.turns)
        return x

    def copies(self, mode: str) -> bool:
        return self.dtype != self.wide and mode in ("out", "in-place", "decode-in-place")


def _as_complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
