r"""A move of rotated keys as one rotation: from old positions and frequencies to new ones.

.. math:: R_\text{new}(p')\,R_\text{old}(p)^{-1}
          = \frac{f_\text{new}}{f_\text{old}}\; R\bigl(p'·s_\text{new} - p·s_\text{old}\bigr)

Steps s are integers modulo 2⁶⁴ turns, so the difference of phases is exact
(:mod:`ropewalk.models.differences`). A side that multiplies in float32 is undone, or made, by
float64 tables of the angles that it computes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.kernels import Steps, rotate, rotate_, rotate_by, rotate_by_
from ropewalk.kernels.fused import needs_derivative
from ropewalk.kernels.phases import float_tables, phase_tables
from ropewalk.kernels.plain import broadcast_shape, broadcast_tables, compute_dtype
from ropewalk.models.differences import positions_between, steps_between
from ropewalk.models.sides import Side, ratio, require_same_lanes
from ropewalk.positions.contract import token_positions
from ropewalk.spectra import Spectrum


class Move:
    """Keys rotated by ``old`` at ``positions`` become keys rotated by ``new`` elsewhere.

    Args:
        old, new: both sides; their lanes are the same.
        positions: of the keys, as ``old`` takes them.
        new_positions: as ``new`` takes them; None if they stay.
        k: the keys, for their shape and dtype; :meth:`out` and :meth:`in_place` take others too.

    Raises:
        TypeError, ValueError: the sides or positions do not fit each other or k.
    """

    def __init__(
        self,
        old: Side,
        new: Side,
        positions: Tensor | None,
        new_positions: Tensor | None,
        k: Tensor,
    ) -> None:
        a, b = old.spectrum, new.spectrum
        _require_keys(k, a)
        require_same_lanes(a, b)
        self.sides = old, new
        self.factor = ratio(a, b)
        self.stays = new_positions is None
        if self.stays and a.axes != b.axes:
            raise ValueError(
                f"new has axes={b.axes}, old has axes={a.axes}: positions of the one are none of "
                "the other; give new_positions"
            )
        self.old_positions = _positions("positions", positions, a, k)
        self.new_positions = (
            self.old_positions
            if new_positions is None
            else _positions("new_positions", new_positions, b, k)
        )
        for side, where in ((old, self.old_positions), (new, self.new_positions)):
            _require_places(side.spectrum, where, k)
        self._made: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    def out(self, k: Tensor, out: Tensor | None = None) -> Tensor:
        """k moved, into ``out`` or a fresh tensor."""
        if self._exact:
            return rotate(k, *self._phases(k.device), out=out)
        return rotate_by(k, *self._tables(k), **self._lanes, out=out)

    def in_place(self, k: Tensor) -> Tensor:
        """k moved where it lies."""
        if self._exact:
            return rotate_(k, *self._phases(k.device))
        return rotate_by_(k, *self._tables(k), **self._lanes)

    @property
    def _exact(self) -> bool:
        """Whether steps do; compilers are given tables instead, whose operators they can see."""
        whole = all(side.phases == "integer" for side in self.sides)
        return whole and not torch.compiler.is_compiling()

    # --- by integer phases ------------------------------------------------------------------

    def _phases(self, device: torch.device) -> tuple[Tensor, Steps]:
        old, new = (side.spectrum for side in self.sides)
        moved = None if self.stays else self.new_positions
        where = positions_between(old, new, self.old_positions, moved)
        return where, steps_between(old, new, self.stays, device)

    # --- by tables, where a side multiplies in float32 ----------------------------------------

    @property
    def _lanes(self) -> dict:
        spectrum = self.sides[0].spectrum
        return {
            "layout": spectrum.layout,
            "lane_offset": spectrum.lane_offset,
            "pairing": spectrum.pairing,
        }

    def _tables(self, k: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of new − old, from float64 tables of both, with the dimensions of k."""
        wide = compute_dtype(k.dtype)
        if wide not in self._made:
            old, new = self.sides
            (c, s), (c2, s2) = (
                tuple(_shaped(t, side, k) for t in _table(side, where))
                for side, where in ((old, self.old_positions), (new, self.new_positions))
            )
            cos, sin = (c2 * c + s2 * s) * self.factor, (s2 * c - c2 * s) * self.factor
            self._made[wide] = cos.to(wide), sin.to(wide)
        return self._made[wide]


def _table(side: Side, where: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of one side in float64, without its factor."""
    spectrum = side.spectrum
    if side.phases == "integer":
        steps = spectrum.on(where.device).tensor
        return phase_tables(where, steps, 1.0, torch.float64)
    inv_freq = torch.tensor(spectrum.freqs, dtype=torch.float32, device=where.device)
    return float_tables(where, inv_freq, 1.0, torch.float64)


def _shaped(table: Tensor, side: Side, k: Tensor) -> Tensor:
    """A table with heads and batch where those of k stand."""
    full = broadcast_tables(table, k, side.spectrum.heads is not None)
    return full if full.dim() == 2 else full[(None,) * (k.dim() - full.dim())]


# --- what is refused --------------------------------------------------------------------------


def _require_keys(k: object, spectrum: Spectrum) -> None:
    if not isinstance(k, Tensor):
        raise TypeError(
            f"k must be a tensor [..., kv_heads, tokens, head_dim], got {type(k).__name__}"
        )
    if (
        k.is_quantized
        or k.dtype.itemsize == 1
        or not (k.dtype.is_floating_point or k.dtype.is_complex)
    ):
        raise TypeError(
            f"k has dtype {k.dtype}: quantised keys cannot be turned without their scales, and "
            "each turn would round them again; dequantise, re-rotate and quantise anew, or compute "
            "the keys anew"
        )
    compute_dtype(k.dtype)
    if k.dim() < 2 or k.shape[-1] != spectrum.head_dim:
        raise ValueError(
            f"k has shape {tuple(k.shape)}; old rotates [..., kv_heads, tokens, "
            f"{spectrum.head_dim}]: give the spectrum of this layer"
        )


def _positions(name: str, positions: Tensor | None, spectrum: Spectrum, k: Tensor) -> Tensor:
    if isinstance(positions, Tensor) and positions.dtype == torch.uint64:
        most = max(positions.flatten().tolist(), default=0)
        if most >= 2**63:
            raise ValueError(
                f"{name} hold {most}, which does not fit int64; positions are 64-bit and signed"
            )
    try:
        where = token_positions(positions, None, k, spectrum.axes, name=name, of="k")
    except ValueError as error:
        axes = spectrum.axes
        if axes > 1 and positions is not None and positions.shape[0] == axes != positions.shape[-1]:
            raise ValueError(f"{error}; write {name}.movedim(0, -1)") from None
        raise
    if where.device != k.device:
        raise ValueError(f"k is on {k.device}, {name} are on {where.device}; move one of them")
    return where


def _require_places(spectrum: Spectrum, where: Tensor, k: Tensor) -> None:
    shape = list(where.shape if spectrum.axes == 1 else where.shape[:-1])
    if spectrum.heads is not None:
        shape.insert(len(shape) - 1, spectrum.heads)
    broadcast_shape([*shape, spectrum.pairs], k, spectrum.heads is not None)


def require_no_graph(name: str, k: Tensor) -> None:
    """Refuse keys that autograd follows, which are not to be changed behind its back.

    Raises:
        ValueError: a derivative is wanted of k.
    """
    if needs_derivative(k):
        raise ValueError(
            f"{name} are part of an autograd graph; fill the cache under torch.no_grad(), and "
            "move it there too"
        )
