r"""Sinusoidal: each pair of lanes is a point on a circle that turns with position.

.. math:: E(p)_{2i} = \sin(p\,θ_i), \quad E(p)_{2i+1} = \cos(p\,θ_i), \qquad
          θ_i = \mathrm{base}^{-i/(D/2 - s)}

s = 0 is the paper's divisor D/2; s = 1 is that of tensor2tensor, fairseq and DDPM, D/2 − 1 (for
even D: with odd D they pad a zero lane instead of adding a sine). The
layouts differ by a fixed permutation: ``"interleaved"`` (sin, cos, sin, cos, …, the paper),
``"sin_cos"`` (all sines, then all cosines: tensor2tensor, fairseq), ``"cos_sin"`` (DiT, Stable
Diffusion). Odd D has ⌈D/2⌉ sines and ⌊D/2⌋ cosines.

A shift is a rotation that does not depend on p: M_k turns each (sin, cos) by −kθ_i.

Phases are 64-bit integers, so codes are exact at any position.

Source: Attention Is All You Need (Vaswani et al., 2017), §3.5; tensor2tensor for s = 1.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Additive, integer_positions, wide_dtype
from ropewalk.encodings.width import check_dim, check_floating
from ropewalk.kernels.phases import phase_tables
from ropewalk.spectra import Spectrum, exact_angle
from ropewalk.spectra.geometric import check_base, powers

SinusoidalLayout = Literal["interleaved", "sin_cos", "cos_sin"]
SINUSOIDAL_LAYOUTS: tuple[SinusoidalLayout, ...] = ("interleaved", "sin_cos", "cos_sin")


class Sinusoidal(Additive):
    """Sines and cosines of geometric frequencies.

    Args:
        dim: width of the code, any ≥ 1.
        base: 10000 in the paper.
        layout: ``"interleaved"``, ``"sin_cos"`` or ``"cos_sin"``.
        shift: s in the exponent's divisor: 0 for D/2, 1 for ⌊D/2⌋ − 1 (needs dim ≥ 4).
        scale: multiplies the code; ``dim ** -0.5`` brings it near embeddings of unit norm.
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
    ) -> None:
        super().__init__()
        self.dim = check_dim(dim)
        if layout not in SINUSOIDAL_LAYOUTS:
            raise ValueError(f"layout={layout!r} is unknown; use one of {SINUSOIDAL_LAYOUTS}")
        if shift not in (0, 1):
            raise ValueError(f"shift={shift!r} must be 0 (divisor D/2) or 1 (divisor D/2 − 1)")
        if shift == 1 and dim < 4:
            raise ValueError(
                f"shift=1 divides by ⌊D/2⌋ − 1, which dim={dim} makes zero or less; use dim ≥ 4"
            )
        if not (isinstance(scale, (int, float)) and 0 < scale < math.inf):
            raise ValueError(f"scale={scale!r} must be finite and above 0")
        pairs = (dim + 1) // 2
        denominator = dim if shift == 0 else 2 * (dim // 2 - 1)
        row = powers(check_base(base), pairs, denominator)
        self.spectrum = Spectrum((row,), 2 * pairs)
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
        where = integer_positions(positions)
        wide = wide_dtype(check_floating(dtype))
        cos, sin = phase_tables(where, self.steps, self.scale, wide)
        return self._arrange(sin, cos).to(dtype)

    def _arrange(self, sin: Tensor, cos: Tensor) -> Tensor:
        """Lanes in the order of the layout; with odd dim the last cosine is dropped."""
        if self.layout == "interleaved":
            return torch.stack((sin, cos), dim=-1).flatten(-2)[..., : self.dim]
        cos = cos[..., : self.dim // 2]
        return torch.cat((sin, cos) if self.layout == "sin_cos" else (cos, sin), dim=-1)

    def reference(self, position: int, length: int | None = None) -> list[float]:
        """The code of one position from exactly reduced angles."""
        angles = [exact_angle(position, f) for f in self.spectrum.inv_freq]
        sines = [self.scale * math.sin(a) for a in angles]
        cosines = [self.scale * math.cos(a) for a in angles][: self.dim // 2]
        if self.layout == "interleaved":
            return [(cosines if j % 2 else sines)[j // 2] for j in range(self.dim)]
        return sines + cosines if self.layout == "sin_cos" else cosines + sines

    def shift_matrix(self, k: int) -> Tensor | None:
        """M_k, float64 ``[dim, dim]``; None for odd dim, whose last sine has no cosine."""
        if self.dim % 2:
            return None
        half = self.dim // 2
        matrix = torch.zeros(self.dim, self.dim, dtype=torch.float64)
        for i, frequency in enumerate(self.spectrum.inv_freq):
            angle = exact_angle(k, frequency)
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
        return f"dim={self.dim}, layout={self.layout!r}, scale={self.scale}"


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
                when=lambda config: config["dim"] % 2 == 1,
            ),
            "width 1": Variant(
                {"dim": 1},
                {"unique": False, "linear": False},
                "one sine comes back to almost every value",
                when=lambda config: config["dim"] == 1,
            ),
        },
    )
)
