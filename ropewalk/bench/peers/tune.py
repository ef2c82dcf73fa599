"""torchtune: its module, on ``[batch, tokens, heads, head_dim]`` as it wants it."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch
from torch import Tensor
from torchtune.modules import RotaryPositionalEmbeddings

from ropewalk.bench.cases import BASE
from ropewalk.bench.rotor import TorchRotor
from ropewalk.spectra import Spectrum


class Torchtune(TorchRotor):
    """Tables in float32 up to the last position; interleaved lanes only."""

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        super().__init__(spectrum, positions, dtype)
        self.require_layout("interleaved")
        self.require_one_axis()
        start, last = int(positions[0]), int(positions[-1])
        self.module = RotaryPositionalEmbeddings(spectrum.head_dim, last + 1, int(BASE))
        self.where = None if start == 0 else positions[None]

    def take(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).contiguous()

    def give(self, y: Tensor) -> Tensor:
        return y.transpose(1, 2)

    def turn(self, x: Tensor) -> Tensor:
        return self.module(x, input_pos=self.where)
