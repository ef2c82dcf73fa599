r"""Sinusoidal: each pair of lanes is a point on a circle that turns with position.

.. math:: E(p)_{2i} = \sin(p\,θ_i), \quad E(p)_{2i+1} = \cos(p\,θ_i), \qquad
          θ_i = \mathrm{base}^{-i/(D/2 - s)}

s = 0 is the paper's divisor D/2; s = 1 is that of tensor2tensor, fairseq and DDPM, D/2 − 1 (for
even D: with odd D they pad a zero lane instead of adding a sine). The
layouts differ by a fixed permutation: ``"interleaved"`` (sin, cos, sin, cos, …, the paper),
``"sin_cos"`` (all sines, then all cosines: tensor2tensor, fairseq), ``"cos_sin"`` (DiT, Stable
Diffusion). Odd D has ⌈D/2⌉ sines and ⌊D/2⌋ cosines.

A shift is a rotation that does not depend on p: M_k turns each (sin, cos) by −kθ_i.

With n axes the code is one block of D/n lanes per axis, the first axis first, each the code of its
coordinate in D/n lanes:

.. math:: E(p_1, …, p_n) = \bigl[\, E_{D/n}(p_1) \;|\; … \;|\; E_{D/n}(p_n) \,\bigr]

On positions ``grid(height, width)`` that is, with two axes,

- ``"sin_cos"``: transformers' ViT-MAE, AIMv2 and RT-DETR, ``[sin y, cos y, sin x, cos x]``. The
  authors' MAE code names the first half h and fills it with the column: use ``grid(…).flip(-1)``.
- ``"interleaved"``: DETR, which counts from 1 (``grid(…) + 1``) and mostly scales each side to
  2π (``fixed`` coordinates and the same ``unit``).
- timm writes ``[sin y, sin x, cos y, cos x]``: ``"sin_cos"`` with its two middle quarters swapped;
  its ``interleave_sin_cos=True`` is ``"sin_cos"`` itself.

Phases are 64-bit integers, so codes are exact at any position.

Source: Attention Is All You Need (Vaswani et al., 2017), §3.5; tensor2tensor for s = 1; Masked
Autoencoders (He et al., 2021) and DETR (Carion et al., 2020) for two axes. Confirmed: against
transformers' ViT-MAE and DETR, positional-encodings in two and three axes
(tests/test_catalogue_additive.py); timm 1.0.31 and the authors' MAE code read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Additive, integer_positions, wide_dtype
from ropewalk.encodings.width import check_dim, check_floating
from ropewalk.kernels.phases import phase_tables
from ropewalk.spectra import Spectrum, exact_angle
from ropewalk.spectra.arguments import LARGEST, check_int, check_number, check_option, shown
from ropewalk.spectra.geometric import check_base, powers

SinusoidalLayout = Literal["interleaved", "sin_cos", "cos_sin"]
SINUSOIDAL_LAYOUTS: tuple[SinusoidalLayout, ...] = ("interleaved", "sin_cos", "cos_sin")


class Sinusoidal(Additive):
    """Sines and cosines of geometric frequencies.

    Args:
        dim: width of the code, any ≥ 1; with several axes a multiple of their number.
        base: 10000 in the paper.
        layout: ``"interleaved"``, ``"sin_cos"`` or ``"cos_sin"``.
        shift: s in the exponent's divisor: 0 for D/2, 1 for ⌊D/2⌋ − 1 (needs dim ≥ 4), D being the
            width of one axis.
        scale: multiplies the code; ``dim ** -0.5`` brings it near embeddings of unit norm.
        axes: number of position axes; each gets a block of dim/axes lanes.
        unit: size of one integer position in coordinates, 1.0 for tokens; see
            :func:`ropewalk.positions.fixed` for fractional ones.

    ``spectrum`` holds the frequencies of one axis, which all of them share.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    steps: Tensor

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        *,
        layout: SinusoidalLayout = "interleaved",
        shift: int = 0,
        scale: float = 1.0,
        axes: int = 1,
        unit: float = 1.0,
    ) -> None:
        super().__init__()
        self.dim = check_dim(dim)
        self.axes = check_dim(axes, "axes")
        if dim % axes:
            raise ValueError(
                f"axes={axes} does not divide dim={dim}: each axis gets an equal block of lanes; "
                f"use dim={dim + -dim % axes}"
            )
        self.width = dim // axes
        check_option("layout", layout, SINUSOIDAL_LAYOUTS)
        if check_int("shift", shift) not in (0, 1):
            raise ValueError(f"shift={shown(shift)} must be 0 (divisor D/2) or 1 (divisor D/2 − 1)")
        if shift == 1 and self.width < 4:
            each = f" for each of axes={axes}" if axes > 1 else ""
            raise ValueError(
                f"shift=1 divides by ⌊D/2⌋ − 1, which dim={self.width}{each} makes zero or less; "
                f"use dim ≥ {4 * axes}"
            )
        check_number("scale", scale, above=0, at_most=LARGEST)
        pairs = (self.width + 1) // 2
        denominator = self.width if shift == 0 else 2 * (self.width // 2 - 1)
        row = powers(check_base(base), pairs, denominator)
        self.spectrum = Spectrum((row,), 2 * pairs, unit=unit)
        self.layout, self.scale = layout, float(scale)
        self.register_derived()

    def encode(
        self,
        positions: Tensor,
        *,
        length: int | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """``[..., T, dim]``; see the module."""
        where = integer_positions(positions, self.axes)
        wide = wide_dtype(check_floating(dtype))
        cos, sin = phase_tables(where, self.steps, self.scale, wide)  # each axis as positions
        codes = self._arrange(sin, cos).to(dtype)
        return codes if self.axes == 1 else codes.flatten(-2)

    def _arrange(self, sin: Tensor, cos: Tensor) -> Tensor:
        """Lanes of one axis as the layout orders them; of an odd width the last cosine is left."""
        if self.layout == "interleaved":
            return torch.stack((sin, cos), dim=-1).flatten(-2)[..., : self.width]
        cos = cos[..., : self.width // 2]
        return torch.cat((sin, cos) if self.layout == "sin_cos" else (cos, sin), dim=-1)

    def reference(self, position: int | Sequence[int], length: int | None = None) -> list[float]:
        """The code of one position from exactly reduced angles."""
        where = (position,) if isinstance(position, int) else tuple(position)
        return [lane for p in where for lane in self._reference(p)]

    def _reference(self, position: int) -> list[float]:
        spectrum, width = self.spectrum, self.width
        angles = [exact_angle(position, f, spectrum.unit) for f in spectrum.inv_freq]
        sines = [self.scale * math.sin(a) for a in angles]
        cosines = [self.scale * math.cos(a) for a in angles][: width // 2]
        if self.layout == "interleaved":
            return [(cosines if j % 2 else sines)[j // 2] for j in range(width)]
        return sines + cosines if self.layout == "sin_cos" else cosines + sines

    def shift_matrix(self, k: int) -> Tensor | None:
        """M_k of k on every axis, float64 ``[dim, dim]``.

        None where an axis has an odd width: its last sine has no cosine.
        """
        if self.width % 2:
            return None
        return torch.block_diag(*[self._turn(k)] * self.axes)

    def _turn(self, k: int) -> Tensor:
        """M_k of one axis."""
        half = self.width // 2
        matrix = torch.zeros(self.width, self.width, dtype=torch.float64)
        for i, frequency in enumerate(self.spectrum.inv_freq):
            angle = exact_angle(k, frequency, self.spectrum.unit)
            s, c = {
                "interleaved": (2 * i, 2 * i + 1),
                "sin_cos": (i, half + i),
                "cos_sin": (half + i, i),
            }[self.layout]
            matrix[s, s] = matrix[c, c] = math.cos(angle)
            matrix[s, c], matrix[c, s] = math.sin(angle), -math.sin(angle)
        return matrix

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The int64 steps of the frequencies."""
        return {"steps": self.spectrum.on(device).tensor}

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        axes = f", axes={self.axes}" if self.axes > 1 else ""
        return f"dim={self.dim}, layout={self.layout!r}, scale={self.scale}{axes}"


def _width(config: Mapping[str, Any]) -> int:
    """Lanes of one axis."""
    return config["dim"] // config.get("axes", 1)


register(
    Spec(
        name="sinusoidal",
        family="additive",
        factory=Sinusoidal,
        title="sines and cosines of geometric frequencies",
        equation=r"E(p)_{2i} = \sin(p\,b^{-2i/D}),\quad E(p)_{2i+1} = \cos(p\,b^{-2i/D})",
        source="Vaswani et al. (2017), Attention Is All You Need",
        config={"dim": 64},
        claims={
            "unique": True,
            "linear": True,
            "relative": False,
            "norm": False,
            "bounded": True,
            "extends": True,
            "deterministic": True,
            "precision": True,
        },
        reasons={
            "relative": "E·E is relative, but not after the projections W_q and W_k",
            "norm": "the code is added",
            "decay": "additive codes have no score of their own",
            "axes": "one axis",
            "precision": "storing codes rounds equally at every position; phases are integers",
        },
        variants={
            "sines then cosines": Variant({"layout": "sin_cos"}),
            "cosines then sines": Variant({"layout": "cos_sin"}),
            "divisor D/2 - 1": Variant({"shift": 1}),
            "odd width": Variant(
                {"dim": 5},
                {"linear": False},
                "the last sine has no cosine to turn with",
                when=lambda config: _width(config) % 2 == 1,
            ),
            "width 1": Variant(
                {"dim": 1},
                {"unique": False, "linear": False},
                "one sine comes back to almost every value",
                when=lambda config: _width(config) == 1,
            ),
            "two axes": Variant(
                {"axes": 2, "layout": "sin_cos"},
                {"axes": False},
                "E·E depends on vector differences, but not after the projections W_q and W_k",
                when=lambda config: config.get("axes", 1) > 1,
            ),
        },
    )
)
