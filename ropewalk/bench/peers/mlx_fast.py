"""MLX: ``mx.fast.rope``."""

# pyright: reportMissingImports=false
from __future__ import annotations

import mlx.core as mx
import torch
from torch import Tensor

from ropewalk.bench.cases import BASE
from ropewalk.bench.rotor import Cannot, Rotor
from ropewalk.spectra import Spectrum


class MlxFast(Rotor):
    """The fused operation; ``traditional`` is its word for interleaved."""

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        super().__init__(spectrum, positions, dtype)
        self.require_one_axis()
        if dtype == torch.float64:
            raise Cannot("no float64")
        self.start = int(positions[0])

    def take(self, x: Tensor) -> mx.array:
        taken = mx.array(x)
        mx.eval(taken)
        return taken

    def give(self, y: mx.array) -> Tensor:
        return torch.from_dlpack(y)

    def _rope(self, x: mx.array) -> mx.array:
        return mx.fast.rope(
            x,
            self.spectrum.rotary_dim,
            traditional=self.spectrum.layout == "interleaved",
            base=BASE,
            scale=1.0,
            offset=self.start,
        )

    def fresh(self, x: mx.array) -> mx.array:
        y = self._rope(x)
        mx.eval(y)
        return y

    def pair(self, q: mx.array, k: mx.array) -> tuple[mx.array, mx.array]:
        turned = self._rope(q), self._rope(k)
        mx.eval(*turned)
        return turned

    def trained(self, x: mx.array, g: mx.array) -> tuple[mx.array, mx.array]:
        (y,), (gradient,) = mx.vjp(self._rope, [x], [g])
        mx.eval(y, gradient)
        return y, gradient
