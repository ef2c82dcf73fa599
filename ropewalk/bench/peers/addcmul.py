"""Products and sums in one pass: the strongest plain form for lanes in halves."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.bench.rotor import TorchRotor
from ropewalk.spectra import Spectrum


class Addcmul(TorchRotor):
    """out = x·cos, then each half of out gains the other half of x times sin by ``addcmul_``."""

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        super().__init__(spectrum, positions, dtype)
        self.require_layout("half", partial=True)
        self.half, self.sine = self.tables(dtype)
        self.whole = self.half.repeat(1, 2)
        self.signed = torch.cat((-self.sine, self.sine), dim=-1)
        self.first, self.second = spectrum.lanes
        self.turning = slice(self.first.start, self.second.stop)
        self.rest = spectrum.rotary_dim < spectrum.head_dim

    def turn(self, x: Tensor) -> Tensor:
        """As one expression, for autograd."""
        lanes = x[..., self.turning]
        other = torch.cat((x[..., self.second], x[..., self.first]), dim=-1)
        y = torch.addcmul(lanes * self.whole, other, self.signed)
        parts = x[..., : self.turning.start], y, x[..., self.turning.stop :]
        return torch.cat(parts, dim=-1) if self.rest else y

    def fresh(self, x: Tensor) -> Tensor:
        return self.into(x, torch.empty_like(x))

    def into(self, x: Tensor, out: Tensor) -> Tensor:
        torch.mul(x[..., self.turning], self.whole, out=out[..., self.turning])
        out[..., self.first].addcmul_(x[..., self.second], self.sine, value=-1)
        out[..., self.second].addcmul_(x[..., self.first], self.sine)
        if self.rest:
            for rest in (slice(0, self.turning.start), slice(self.turning.stop, None)):
                out[..., rest] = x[..., rest]
        return out

    def in_place(self, x: Tensor) -> Tensor:
        first, second = x[..., self.first], x[..., self.second]
        before = first.clone()
        first.mul_(self.half).addcmul_(second, self.sine, value=-1)
        second.mul_(self.half).addcmul_(before, self.sine)
        return x
