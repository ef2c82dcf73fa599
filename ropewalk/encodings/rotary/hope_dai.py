r"""HoPE (hyperbolic): a Lorentz boost in place of the rotation, damped so that scores fade.

.. math:: q_m = e^{-mθ'} B(mθ_c)\,x_q, \quad k_n = e^{nθ'} B(-nθ_c)\,x_k, \qquad
   B(φ) = \begin{pmatrix} \cosh φ & \sinh φ \\ \sinh φ & \cosh φ \end{pmatrix}

Then ⟨q_m, k_n⟩ = Σ_c e^(−Δθ') x_q^T B(Δθ_c) x_k with Δ = m − n: B(mθ)^T B(−nθ) = B((m−n)θ), since
boosts are symmetric and their rapidities add. Along (1, ±1)/√2 of a pair it is a plain decay
e^(−Δ(θ' ∓ θ_c)), so scores fade for all contents if and only if θ' > max θ.

Encoded vectors are given along these two directions, (x_a + x_b)/√2 and (x_a − x_b)/√2 of each
pair, q and k alike. Every score is that of the equations above. In the lanes themselves the two
exponentials would be added up, and the smaller one lost: scores of the published form err by up to
half of ‖q‖‖k‖ in float32 at 8 positions from the center, and by .002 of it in float64 at 15.

θ_c = scale · base^(−2c/d) and θ' = damping · max θ, in 1/positions. As published scale is 1: the
fastest pair then grows as e^(mθ), and k = e^(nθ')B(−nθ) leaves the normal numbers of float32 at 42
positions from the center and of float16 at 5. A position beyond is refused; a smaller ``scale``
reaches as much farther and fades as much more slowly.

Source: HoPE: Hyperbolic Rotary Positional Encoding for Stable Long-Range Dependency Modeling in
Large Language Models (Dai et al., 2025), equations 5–12. Confirmed: by an independent
implementation of those equations, whose scores are the sum above, and by mpmath
(tests/test_catalogue_rotary.py). The paper fixes no value of θ' beyond θ' > max θ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import wide_dtype
from ropewalk.encodings.literal import lane_pairs
from ropewalk.encodings.range import Centred, from_center
from ropewalk.encodings.tables import places, spread, widest
from ropewalk.kernels.lanes import join
from ropewalk.spectra import Layout, geometric
from ropewalk.spectra.arguments import check_number

_HALF = 0.5**0.5


class HyperbolicRoPE(Centred):
    """Damped Lorentz boosts of pairs of lanes.

    Args:
        head_dim: width of a head, even.
        base: as rope_theta.
        scale: the fastest rapidity, 1/positions; 1 as published.
        damping: θ' ÷ max θ; above 1, or scores do not fade.
        center: the position where nothing grows; half the longest text doubles the reach.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    rates: Tensor

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        *,
        scale: float = 1.0,
        damping: float = 1.1,
        center: int = 0,
        layout: Layout = "half",
    ) -> None:
        super().__init__(center)
        self.scale = check_number("scale", scale, above=0)
        self.damping = check_number("damping", damping, above=0)
        plain = geometric(head_dim, base, layout=layout)
        self.spectrum = plain.map(lambda theta: theta * self.scale)
        self.head_dim = head_dim
        self.register_derived()

    @property
    def damped_by(self) -> float:
        """θ', by which the logarithm of every score falls a position."""
        return self.damping * max(self.spectrum.inv_freq)

    @property
    def rate(self) -> float:
        """The natural logarithm by which the fastest amplitude changes a position."""
        return self.damped_by + max(self.spectrum.inv_freq)

    def signed(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None, sign: int
    ) -> Tensor:
        """x boosted by ±mθ, times e^(∓mθ'), along (1, ±1)/√2."""
        where = places(x, positions, offset, self.spectrum)
        away = from_center(where, self.center, self.rate, x.dtype)
        rates = self.rates if self.rates.device == x.device else self.derive(x.device)["rates"]
        size = torch.exp(sign * away[..., None, None].to(rates.dtype) * rates) * _HALF
        wide = wide_dtype(x.dtype)
        up, down = spread(x, *size.to(wide).unbind(-2))
        first, second = (x[..., part].to(wide) for part in self.spectrum.lanes)
        return join(x, (first + second) * up, (first - second) * down, self.spectrum.lanes)

    def literal(self, x: Sequence[float], position: int, sign: int) -> list[float]:
        """One vector as q (sign 1) or as k (−1) by a float64 loop."""
        where = sign * (position - self.center)
        result = [float(value) for value in x]
        for (a, b), theta in zip(lane_pairs(self.spectrum), self.spectrum.inv_freq, strict=True):
            result[a] = (x[a] + x[b]) * _HALF * math.exp(where * (theta - self.damped_by))
            result[b] = (x[a] - x[b]) * _HALF * math.exp(-where * (theta + self.damped_by))
        return result

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """θ − θ' and −θ − θ' of every pair, ``[2, pairs]``, float64 where the device has it."""
        theta, damped = self.spectrum.inv_freq, self.damped_by
        rates = [[f - damped for f in theta], [-f - damped for f in theta]]
        dtype = widest(torch.device("cpu" if device is None else device))
        return {"rates": torch.tensor(rates, dtype=dtype, device=device)}

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return (
            f"head_dim={self.head_dim}, scale={self.scale}, damping={self.damping}, "
            f"center={self.center}, layout={self.spectrum.layout!r}"
        )


register(
    Spec(
        name="hope_dai",
        family="rotary",
        factory=HyperbolicRoPE,
        title="hyperbolic rotary: damped Lorentz boosts",
        equation=r"q_m = e^{-m\theta'} B(m\theta_c)\,x_q,\quad k_n = e^{n\theta'} B(-n\theta_c)\,"
        r"x_k,\quad B(\varphi) = \begin{pmatrix} \cosh\varphi & \sinh\varphi \\ "
        r"\sinh\varphi & \cosh\varphi \end{pmatrix}",
        source="Dai et al. (2025), HoPE: Hyperbolic Rotary Positional Encoding for Stable "
        "Long-Range Dependency Modeling in Large Language Models",
        config={"head_dim": 64, "scale": 2.0**-12},
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
            "norm": "a boost is no rotation",
            "relative": "where values are in range; the center cancels",
            "bounded": "k grows exponentially with position",
            "decay": "θ' is above every θ",
            "extends": "positions end where values leave the range of the dtype",
            "axes": "one axis: a decay with the sign of Δ has no direction in a plane",
            "precision": "float16 ends at 18,927 positions from the center, bfloat16 at 170,347",
        },
        variants={
            "as published": Variant(
                {"scale": 1.0},
                {"bounded": None, "precision": None},
                "positions end at 41: too few to measure it",
                {"rounding": "float16 ends at position 4"},
                when=lambda config: config.get("scale", 1.0) == 1.0,
            ),
            "too little damping": Variant(
                {"damping": 0.5},
                {"decay": False},
                "with θ' below the fastest θ, that pair's scores grow with distance",
                when=lambda config: config.get("damping", 1.1) < 1.0,
            ),
        },
    )
)
