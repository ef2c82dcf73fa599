r"""LeRoPE: RoPE whose frequencies are learned, one factor per band.

.. math:: \text{angle}_c = p\,θ_c\,e^{s_c}, \qquad s_c = 0 \text{ at the start}

with p the position, θ_c = base^(−2c/d) in radians per position and s a trained vector of one number
per pair. At the start it is RoPE, bit for bit.

The angle is p·θ_c by integer phases, exact at any position, plus p·θ_c·(e^s − 1) in float64: what
is learned is a float and rounds to 1e-16 of that second angle (in float32 on devices that lack
float64).

Source: known from third-party notes on the scheme of that name only; its paper was not read.
Confirmed: nothing beyond the mathematics above, by a literal loop and numerical gradients
(tests/test_catalogue_rotary.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, register
from ropewalk.core import wide_dtype
from ropewalk.encodings.alike import Alike
from ropewalk.encodings.claims import ROTATION_CLAIMS, ROTATION_REASONS
from ropewalk.encodings.literal import angles, turned
from ropewalk.encodings.tables import places, turn, widest
from ropewalk.encodings.width import empty_parameter
from ropewalk.kernels.phases import phase_tables
from ropewalk.spectra import Layout, geometric


class LeRoPE(Alike):
    """Rotary encoding with a learned logarithmic scale per pair.

    Args:
        head_dim: width of a head, even.
        base: rope_theta at the start.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    steps: Tensor
    theta: Tensor

    def __init__(self, head_dim: int, base: float = 10000.0, *, layout: Layout = "half") -> None:
        super().__init__()
        self.spectrum = geometric(head_dim, base, layout=layout)
        self.head_dim = head_dim
        self.log_scale = empty_parameter((self.spectrum.pairs,))
        self.register_derived()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All scales 1."""
        nn.init.zeros_(self.log_scale)
        super().reset_parameters()

    @property
    def frequencies(self) -> Tensor:
        """What the frequencies have become, float64 ``[pairs]``."""
        theta = torch.tensor(self.spectrum.inv_freq, dtype=torch.float64)
        return theta * self.log_scale.detach().to("cpu", torch.float64).exp()

    def turned(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None, inverse: bool
    ) -> Tensor:
        """x ``[..., heads, T, head_dim]`` turned; differentiable in ``log_scale``."""
        where = places(x, positions, offset, self.spectrum)
        at_home = self.steps.device == x.device
        here = {"steps": self.steps, "theta": self.theta} if at_home else self.derive(x.device)
        wide, theta = wide_dtype(x.dtype), here["theta"]
        cos, sin = phase_tables(where, here["steps"], 1.0, wide)
        change = theta * torch.expm1(self.log_scale.to(x.device, theta.dtype))
        learned = where[..., None].to(theta.dtype) * change
        more, much = learned.cos().to(wide), learned.sin().to(wide)
        cos, sin = cos * more - sin * much, sin * more + cos * much
        return turn(x, cos, sin, self.spectrum, inverse=inverse)

    def reference(self, x: Sequence[float], position: int | Sequence[int]) -> list[float]:
        """One vector turned by a literal float64 loop."""
        where = position if isinstance(position, int) else position[0]
        scales = self.log_scale.detach().to("cpu", torch.float64).tolist()
        learned = [
            angle + where * theta * math.expm1(scale)
            for angle, theta, scale in zip(
                angles(self.spectrum, where), self.spectrum.inv_freq, scales, strict=True
            )
        ]
        return turned(x, self.spectrum, ((math.cos(t), math.sin(t)) for t in learned))

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The int64 steps, and θ in float64 where the device has it."""
        dtype = widest(torch.device("cpu" if device is None else device))
        return {
            "steps": self.spectrum.on(device).tensor,
            "theta": torch.tensor(self.spectrum.inv_freq, dtype=dtype, device=device),
        }

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"head_dim={self.head_dim}, layout={self.spectrum.layout!r}"


register(
    Spec(
        name="lerope",
        family="rotary",
        factory=LeRoPE,
        title="rotary with one learned frequency scale per band",
        equation=r"\mathrm{angle}_c = p\,\theta_c\,e^{s_c},\quad s_c = 0\text{ at the start}",
        source="LeRoPE (2026), known from third-party notes",
        config={"head_dim": 64},
        claims=ROTATION_CLAIMS,
        reasons={
            **ROTATION_REASONS,
            "unique": "at the start; training may make pairs alike",
            "deterministic": "starts as RoPE; nothing is drawn",
            "precision": "the exact part; what is learned rounds to 1e-16 of its angle",
        },
    )
)
