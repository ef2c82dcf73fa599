r"""A move of rotated keys as one rotation: from old positions and frequencies to new ones.

.. math:: R_\text{new}(p')\,R_\text{old}(p)^{-1}
          = \frac{f_\text{new}}{f_\text{old}}\; R\bigl(p'·s_\text{new} - p·s_\text{old}\bigr)

Steps s are integers modulo 2⁶⁴ turns, so the difference of phases is exact: it is the phase of one
spectrum whose axes are those of both sides, new ones forwards and old ones backwards. Where the
steps are alike, positions are subtracted first; where the positions are, the steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ropewalk.encodings.rotary.rope import PHASES, Phases, RoPE
from ropewalk.kernels import Steps, rotate, rotate_, rotate_by, rotate_by_
from ropewalk.kernels.fused import needs_derivative
from ropewalk.kernels.phases import float_tables, phase_tables
from ropewalk.kernels.plain import broadcast_shape, broadcast_tables, compute_dtype
from ropewalk.positions.contract import token_positions
from ropewalk.spectra import Spectrum
from ropewalk.spectra.by_length import LengthSpectrum


@dataclass(frozen=True)
class Side:
    """One side of a move: a spectrum, and how positions and its frequencies are multiplied."""

    spectrum: Spectrum
    phases: Phases

    @staticmethod
    def of(name: str, source: object, phases: object) -> Side:
        """The side that ``source`` describes: a Spectrum or Steps with ``phases``, or a RoPE.

        Raises:
            TypeError: it is something else, or an encoding that is no fixed rotation.
            ValueError: ``phases`` is unknown or does not fit, or a length is to be pinned first.
        """
        if phases not in PHASES:
            raise ValueError(f"phases={phases!r} is unknown; use one of {PHASES}")
        if isinstance(source, RoPE):
            own = type(source)
            if own.encode_k is not RoPE.encode_k or own.encode_q is not RoPE.encode_q:
                raise TypeError(f"{name} is a {own.__name__}, {_NO_ROTATION}")
            source, phases = source.spectrum, source.phases
        elif isinstance(source, Steps):
            source = source.spectrum
        if not isinstance(source, Spectrum):
            what = f"{name} is a {type(source).__name__}"
            if isinstance(source, torch.nn.Module):
                raise TypeError(f"{what}, {_NO_ROTATION}")
            raise TypeError(f"{what}; give the Spectrum (or RoPE) that keys are rotated by")
        if isinstance(source, LengthSpectrum) and source.rule is not None:
            raise ValueError(
                f"{name} depends on the length, and so do keys rotated by it; pin the length that "
                f"they were rotated at: {name}.for_length(n)"
            )
        if phases == "float32" and source.unit != 1.0:
            raise ValueError(
                f"{name} has unit={source.unit!r}; phases='float32' is the product of whole "
                "positions and frequencies: use phases='integer'"
            )
        return Side(source, "float32" if phases == "float32" else "integer")


_NO_ROTATION = (
    "which does more to a key than a fixed rotation: what it did depends on content, or scales "
    "keys apart from their angle, and is not undone by one; compute the keys anew"
)


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
        _require_same_lanes(a, b)
        self.sides = old, new
        self.factor = _ratio(a, b)
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
            return rotate(k, self._where, self._steps(k.device), out=out)
        return rotate_by(k, *self._tables(k), **self._lanes, out=out)

    def in_place(self, k: Tensor) -> Tensor:
        """k moved where it lies."""
        if self._exact:
            return rotate_(k, self._where, self._steps(k.device))
        return rotate_by_(k, *self._tables(k), **self._lanes)

    @property
    def _exact(self) -> bool:
        """Whether steps do; compilers are given tables instead, whose operators they can see."""
        whole = all(side.phases == "integer" for side in self.sides)
        return whole and not torch.compiler.is_compiling()

    # --- by integer phases ------------------------------------------------------------------

    def _steps(self, device: torch.device) -> Steps:
        old, new = (side.spectrum for side in self.sides)
        return steps_between(old, new, self.stays, device)

    @property
    def _where(self) -> Tensor:
        """Positions for :meth:`_steps`; int64 wraps, and so do phases."""
        old, new = (side.spectrum for side in self.sides)
        if self.stays:
            return self.old_positions
        if old.steps == new.steps:
            return self.new_positions - self.old_positions
        p, q = self.old_positions, self.new_positions
        p, q = (t[..., None] if s.axes == 1 else t for t, s in ((p, old), (q, new)))
        lead = torch.broadcast_shapes(p.shape[:-1], q.shape[:-1])
        return torch.cat([q.expand(*lead, -1), p.expand(*lead, -1)], dim=-1)

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


@lru_cache(maxsize=256)
def steps_between(old: Spectrum, new: Spectrum, stays: bool, device: torch.device) -> Steps:
    """The steps of a move: of one side, of their difference, or of both.

    The tensor is exact; its spectrum says the shape, the lanes and the factor, its frequencies
    being those of the steps to one float64 rounding.
    """
    same = old.steps == new.steps
    heads = max(len(old.steps), len(new.steps))
    rows = [
        _rows(_head(old.steps, h), _head(new.steps, h), stays, same and not stays)
        for h in range(heads)
    ]
    per_head = old.heads is not None or new.heads is not None
    with torch.inference_mode(False):
        tensor = torch.tensor(rows if per_head else rows[0], dtype=torch.int64, device=device)
    freqs = [[[step * (2 * math.pi * 2.0**-64) for step in row] for row in m] for m in rows]
    carrier = Spectrum(
        freqs if per_head else freqs[0],  # pyright: ignore[reportArgumentType]
        old.head_dim,
        layout=old.layout,
        lane_offset=old.lane_offset,
        pairing=old.pairing,
        attention_factor=_ratio(old, new),
    )
    return Steps(tensor, carrier)


Rows = tuple[tuple[int, ...], ...]


def _head(matrices: tuple[Rows, ...], head: int) -> Rows:
    return matrices[head if len(matrices) > 1 else 0]


def _rows(old: Rows, new: Rows, stays: bool, same: bool) -> Rows:
    if same:
        return new
    if stays:
        return tuple(
            tuple(_signed(b - a) for a, b in zip(*rows, strict=True))
            for rows in zip(old, new, strict=True)
        )
    return (*new, *(tuple(_signed(-a) for a in row) for row in old))


def _signed(value: int) -> int:
    """The int64 that is ``value`` modulo 2⁶⁴."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


# --- what is refused --------------------------------------------------------------------------


def _require_keys(k: object, spectrum: Spectrum) -> None:
    if not isinstance(k, Tensor):
        raise TypeError(
            f"k must be a tensor [..., kv_heads, tokens, head_dim], got {type(k).__name__}"
        )
    if k.is_quantized or k.dtype.itemsize == 1 or not k.dtype.is_floating_point:
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


def _lanes_of(spectrum: Spectrum) -> tuple[tuple[int, ...], tuple[int, ...]]:
    lanes = range(spectrum.head_dim)
    first, second = spectrum.lanes
    return tuple(lanes[first]), tuple(lanes[second])


def _require_same_lanes(old: Spectrum, new: Spectrum) -> None:
    for name in ("head_dim", "rotary_dim"):
        a, b = getattr(old, name), getattr(new, name)
        if a != b:
            raise ValueError(
                f"old has {name}={a}, new has {name}={b}: keys hold a rotation of the first and "
                "no trace of the other lanes' pairs; give both the same lanes (a pair that stands "
                "has frequency 0.0), or compute the keys anew"
            )
    if _lanes_of(old) != _lanes_of(new):
        raise ValueError(
            f"old pairs lanes by layout={old.layout!r}, lane_offset={old.lane_offset}, "
            f"pairing={old.pairing!r}, new by layout={new.layout!r}, lane_offset={new.lane_offset},"
            f" pairing={new.pairing!r}: a move turns pairs and moves no lanes; give both the "
            "layout that the keys are in"
        )
    if None not in (old.heads, new.heads) and old.heads != new.heads:
        raise ValueError(
            f"old has frequencies for {old.heads} heads, new for {new.heads}; give both one set "
            "for each KV head, or one set for all"
        )


def _ratio(old: Spectrum, new: Spectrum) -> float:
    ratio = new.attention_factor / old.attention_factor
    if not 2.0**-120 < ratio < 2.0**120:
        raise ValueError(
            f"old has attention_factor={old.attention_factor!r}, new has "
            f"{new.attention_factor!r}: their ratio {ratio!r} leaves no digits of the keys; "
            "compute the keys anew"
        )
    return ratio


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
        if isinstance(positions, Tensor) and spectrum.axes > 1 and positions.dim() == 3:
            if positions.shape[0] == spectrum.axes != positions.shape[-1]:
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
