"""Exact tables of a rotary module, read off its own tables at small positions.

Which frequency and which axis of the positions each column shows is seen from a step along each
axis; what was read is then held against the module's tables at other positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.kernels import tables
from ropewalk.spectra import Spectrum

_TOKENS = 5
_CLOSE = 2e-4
"""Radians by which float32 tables may miss the exact ones at the small positions of the test."""


@dataclass(frozen=True)
class Exact:
    """The tables of one rotary module, or of one layer type of it.

    spectrum    one pair for each different column of the tables
    columns     which pair each column shows
    axes_first  whether positions come as ``[axes, batch, tokens]``
    cast        whether the tables come in the dtype of x; else in float32
    complex     whether cos + i·sin comes in one tensor
    """

    spectrum: Spectrum
    columns: tuple[int, ...]
    axes_first: bool
    cast: bool
    complex: bool

    def __call__(self, x: Tensor, positions: Tensor) -> Any:
        """What the module's forward returns."""
        steps = self.spectrum.on(positions.device)
        dtype = torch.float64 if self.cast and x.dtype == torch.float64 else torch.float32
        return self.returned(x, *tables(self.by_axis(positions), steps, dtype))

    def by_axis(self, positions: Tensor) -> Tensor:
        """The module's positions as a spectrum takes them, its axes last if there are several."""
        if not self.axes_first:
            return positions
        if positions.dim() == 2:
            positions = positions[None]
        return positions.expand(self.spectrum.axes, -1, -1).movedim(0, -1)

    def returned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Any:
        """cos and sin of the spectrum's pairs in the columns that the module's forward returns."""
        if self.columns != tuple(range(self.spectrum.pairs)):
            lanes = torch.tensor(self.columns, device=cos.device)
            cos, sin = cos.index_select(-1, lanes), sin.index_select(-1, lanes)
        if self.complex:
            return torch.complex(cos, sin)
        return (cos.to(x.dtype), sin.to(x.dtype)) if self.cast else (cos, sin)


def read_off(module: nn.Module, key: str | None, inv_freq: Tensor) -> Exact | None:
    """The exact tables that are the module's own but for rounding; None if it has no such ones."""
    frequencies = [float(f) for f in inv_freq.detach().flatten().tolist()]
    for axes, first in ((1, False), (2, True), (3, True), (4, True), (2, False), (3, False)):
        exact = _read_off(module, key, frequencies, axes, first)
        if exact is not None and _agrees(module, key, exact):
            return exact
    return None


def _shape(positions: Tensor, first: bool) -> Tensor:
    """Positions ``[tokens, axes]`` as the module takes them."""
    if positions.shape[-1] == 1:
        return positions[None, :, 0]
    return positions.T[:, None, :] if first else positions


def _own(
    module: nn.Module, key: str | None, positions: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, bool] | None:
    """The module's own cos, sin ``[tokens, columns]``, and whether they came as one tensor."""
    buffer = next(module.buffers(recurse=False))
    x = torch.zeros(1, 1, 1, dtype=dtype, device=buffer.device)
    arguments = (x, positions.to(buffer.device)) + (() if key is None else (key,))
    try:
        with torch.no_grad():
            result = module.forward(*arguments)
    except (RuntimeError, TypeError, IndexError, ValueError, AttributeError, KeyError):
        return None
    joined = isinstance(result, Tensor) and result.is_complex()
    pair = (result.real, result.imag) if joined else result
    if not isinstance(pair, tuple) or len(pair) != 2:
        return None
    cos, sin = (t.squeeze(0) if isinstance(t, Tensor) and t.dim() == 3 else t for t in pair)
    if not isinstance(cos, Tensor) or cos.dim() != 2 or cos.shape[0] != _TOKENS:
        return None
    return cos, sin, joined


def _read_off(
    module: nn.Module, key: str | None, frequencies: list[float], axes: int, first: bool
) -> Exact | None:
    """Which frequency and axis each column shows, from a step along each axis."""
    rows: list[list[float]] = []
    factor = 1.0
    joined = cast = False
    for axis in range(axes):
        positions = torch.zeros(_TOKENS, axes, dtype=torch.int64)
        positions[1, axis] = 1
        own = _own(module, key, _shape(positions, first), torch.float32)
        half = _own(module, key, _shape(positions, first), torch.bfloat16)
        if own is None or half is None:
            return None
        cos, sin, joined = own
        cast = half[0].dtype == torch.bfloat16
        factor = cos[0].double().max().item()
        angles = torch.atan2(sin[1].double(), cos[1].double()).tolist()
        rows.append([_nearest(angle, frequencies) for angle in angles])
    if any(f != f for row in rows for f in row) or factor <= 0:
        return None
    columns = list(zip(*rows, strict=True))
    pairs = list(dict.fromkeys(columns))
    freqs = tuple(tuple(pair[axis] for pair in pairs) for axis in range(axes))
    spectrum = Spectrum(
        freqs, head_dim=2 * len(pairs), attention_factor=_factor(module, key, factor)
    )
    index = tuple(pairs.index(column) for column in columns)
    return Exact(spectrum, index, first, cast, joined)


def _factor(module: nn.Module, key: str | None, seen: float) -> float:
    """The module's own factor, where it is the one seen in its tables (in float32)."""
    stated = getattr(
        module, "attention_scaling" if key is None else f"{key}_attention_scaling", None
    )
    known = isinstance(stated, (int, float)) and abs(stated - seen) <= 1e-6 * seen
    return float(stated) if known and stated is not None else seen


def _nearest(angle: float, frequencies: list[float]) -> float:
    """The frequency whose angle this is; 0 for a lane that stands; nan if it is none of them."""
    if angle == 0.0:
        return 0.0
    best = min(frequencies, key=lambda f: abs(f - angle))
    return best if abs(best - angle) <= 2e-6 * abs(best) + 1e-12 else float("nan")


def _agrees(module: nn.Module, key: str | None, exact: Exact) -> bool:
    """Whether the exact tables are the module's own, but for rounding, at other positions."""
    random = torch.Generator().manual_seed(3)
    positions = torch.randint(0, 200, (_TOKENS, exact.spectrum.axes), generator=random)
    own = _own(module, key, _shape(positions, exact.axes_first), torch.float32)
    if own is None:
        return False
    x = torch.zeros(1, 1, 1)
    shaped = _shape(positions, exact.axes_first).to(own[0].device)
    mine = exact(x, shaped)
    pair = (mine.real, mine.imag) if exact.complex else mine
    limit = _CLOSE * exact.spectrum.attention_factor
    return all(
        bool((a.reshape(b.shape) - b).abs().max() <= limit)
        for a, b in zip(pair, own[:2], strict=True)
    )
