"""ropewalk itself, through its public calls."""

from __future__ import annotations

import torch
from torch import Tensor

import ropewalk
from ropewalk.bench.rotor import TorchRotor
from ropewalk.spectra import Spectrum


class Ours(TorchRotor):
    """The same calls as in a model: a spectrum, and where the tokens start."""

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        super().__init__(spectrum, positions, dtype)
        self.where = positions if spectrum.axes > 1 else None
        self.offset = None if spectrum.axes > 1 else int(positions[0])

    def turn(self, x: Tensor) -> Tensor:
        return ropewalk.rotate(x, self.where, self.spectrum, offset=self.offset)

    def into(self, x: Tensor, out: Tensor) -> Tensor:
        return ropewalk.rotate(x, self.where, self.spectrum, offset=self.offset, out=out)

    def in_place(self, x: Tensor) -> Tensor:
        return ropewalk.rotate_(x, self.where, self.spectrum, offset=self.offset)

    def pair(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return ropewalk.rotate_qk(q, k, self.where, self.spectrum, offset=self.offset)

    def pair_in_place(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return ropewalk.rotate_qk_(q, k, self.where, self.spectrum, offset=self.offset)
