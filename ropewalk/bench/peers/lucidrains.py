"""rotary-embedding-torch: its module, which makes positions in the dtype of x."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch
from rotary_embedding_torch import RotaryEmbedding
from torch import Tensor

from ropewalk.bench.cases import BASE
from ropewalk.bench.rotor import TorchRotor
from ropewalk.spectra import Spectrum


class RotaryEmbeddingTorch(TorchRotor):
    """``rotate_queries_or_keys``; interleaved lanes only."""

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        super().__init__(spectrum, positions, dtype)
        self.require_layout("interleaved", partial=True)
        self.require_one_axis()
        self.module = RotaryEmbedding(dim=spectrum.rotary_dim, theta=int(BASE))
        self.start = int(positions[0])

    def turn(self, x: Tensor) -> Tensor:
        return self.module.rotate_queries_or_keys(x, offset=self.start)
