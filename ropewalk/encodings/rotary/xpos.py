r"""xPos: a rotation whose amplitude rises in k and falls in q, so that scores fade with distance.

.. math:: q_m = ζ_c^{(m - o)/s}\,R(mθ_c)\,x_q, \quad k_n = ζ_c^{-(n - o)/s}\,R(nθ_c)\,x_k,
          \qquad ζ_c = \frac{2c/d + γ}{1 + γ}

Then ⟨q_m, k_n⟩ = Σ_c ζ_c^((m−n)/s) x_q^T R((n−m)θ_c) x_k: it depends on m − n alone, and fades at
least like .9777^(Δ/512) for d = 64. s = 512 positions is the scale base, γ = .4, and o is the
center, where the amplitude is 1. It cancels in every score, and is fixed: code whose center moves
with the length of the sequence does not match keys that it cached.

The amplitudes grow without bound. ζ_0^(±Δ/s) is a normal number of float16 up to 3,966 positions
from the center, of bfloat16 and float32 up to 35,694, of float64 up to 289,519, and a position
beyond that is refused: n·ln 2·512 / ln 3.5 for 2^(±n), n = 14, 126 and 1022. In float16, values of
k above 4 pass 65,504 a little earlier.

Source: A Length-Extrapolatable Transformer (Sun et al., 2022), §2.2, and the authors' code
(torchscale) for s and γ. Confirmed: against x-transformers and rotary-embedding-torch with the
center where they put it (tests/test_catalogue_rotary.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.catalog import Spec, register
from ropewalk.core import wide_dtype
from ropewalk.encodings.literal import angles, turned
from ropewalk.encodings.range import Centred, from_center
from ropewalk.encodings.tables import places, turn, widest
from ropewalk.kernels.phases import phase_tables
from ropewalk.spectra import Layout, geometric
from ropewalk.spectra.arguments import check_number


class XPos(Centred):
    """Rotary encoding with an exponential amplitude per pair.

    Args:
        head_dim: width of a head, even.
        base: rope_theta.
        scale_base: s, positions over which the amplitude changes by ζ; above 0.
        gamma: γ, above 0; the smaller, the faster the first pairs fade.
        center: o, the position whose amplitude is 1; half the longest text doubles the reach.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    steps: Tensor
    rates: Tensor

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        *,
        scale_base: float = 512.0,
        gamma: float = 0.4,
        center: int = 0,
        layout: Layout = "half",
    ) -> None:
        super().__init__(center)
        self.spectrum = geometric(head_dim, base, layout=layout)
        self.head_dim = head_dim
        self.scale_base = check_number("scale_base", scale_base, above=0)
        self.gamma = check_number("gamma", gamma, above=0)
        self.register_derived()

    @property
    def zeta(self) -> list[float]:
        """ζ of every pair, rising."""
        pairs = self.spectrum.pairs
        return [(c / pairs + self.gamma) / (1 + self.gamma) for c in range(pairs)]

    @property
    def rate(self) -> float:
        """The natural logarithm by which the fastest amplitude changes a position."""
        return -math.log(self.zeta[0]) / self.scale_base

    def signed(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None, sign: int
    ) -> Tensor:
        """x turned, times ζ^(±(m−o)/s)."""
        where = places(x, positions, offset, self.spectrum)
        away = from_center(where, self.center, self.rate, x.dtype)
        here = self._on(x.device)
        growth = torch.exp(sign * away[..., None].to(here["rates"].dtype) * here["rates"])
        wide = wide_dtype(x.dtype)
        cos, sin = phase_tables(where, here["steps"], 1.0, wide)
        growth = growth.to(wide)
        return turn(x, cos * growth, sin * growth, self.spectrum)

    def _on(self, device: torch.device) -> dict[str, Tensor]:
        if self.steps.device == device:
            return {"steps": self.steps, "rates": self.rates}
        return self.derive(device)

    def literal(self, x: Sequence[float], position: int, sign: int) -> list[float]:
        """One vector as q (sign 1) or as k (−1) by a float64 loop."""
        power = sign * (position - self.center) / self.scale_base
        sizes = [zeta**power for zeta in self.zeta]
        found = zip(angles(self.spectrum, position), sizes, strict=True)
        return turned(x, self.spectrum, ((math.cos(t) * r, math.sin(t) * r) for t, r in found))

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The int64 steps, and ln ζ / s in float64 where the device has it."""
        rates = [math.log(zeta) / self.scale_base for zeta in self.zeta]
        dtype = widest(torch.device("cpu" if device is None else device))
        return {
            "steps": self.spectrum.on(device).tensor,
            "rates": torch.tensor(rates, dtype=dtype, device=device),
        }

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return (
            f"head_dim={self.head_dim}, scale_base={self.scale_base}, gamma={self.gamma}, "
            f"center={self.center}, layout={self.spectrum.layout!r}"
        )


register(
    Spec(
        name="xpos",
        family="rotary",
        factory=XPos,
        title="rotary with an exponential decay, shared out over q and k",
        equation=r"q_m = \zeta_c^{(m - o)/s} R(m\theta_c)\,x_q,\quad "
        r"k_n = \zeta_c^{-(n - o)/s} R(n\theta_c)\,x_k,\quad \zeta_c = \tfrac{2c/d + .4}{1.4}",
        source="Sun et al. (2022), A Length-Extrapolatable Transformer",
        config={"head_dim": 64},
        claims={
            "unique": True,
            "linear": True,
            "relative": True,
            "norm": False,
            "bounded": False,
            "decay": True,
            "extends": False,
            "deterministic": True,
            "precision": False,
        },
        reasons={
            "norm": "the amplitude changes with position",
            "relative": "where amplitudes are in range; the center cancels",
            "bounded": "k grows like ζ^(−p/s), by 4e37 at position 35,000",
            "extends": "positions end where amplitudes leave the range of the dtype",
            "axes": "one axis: a decay with the sign of Δ has no direction in a plane",
            "precision": "float16 ends at 3,966 positions from the center, bfloat16 at 35,694",
        },
    )
)
