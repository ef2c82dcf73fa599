r"""PoPE: magnitudes say what, phases say where; q and k become twice as wide.

.. math:: q_c = μ(x_q)_c\,e^{i\,pθ_c}, \quad k_c = μ(x_k)_c\,e^{i(pθ_c + δ_c)}, \qquad
          μ(x) = \ln(1 + e^x), \quad θ_c = \mathrm{base}^{-c/d}

for c = 0 … d−1, so that ⟨q_m, k_n⟩ = Σ_c μ(x_q)_c μ(x_k)_c cos((m − n)θ_c − δ_c): content only sets
how much a frequency counts and never shifts its phase, unlike in RoPE. The result holds the d
cosines, then the d sines. δ_c is learned for each KV head and kept in [−2π, 0]; it starts at 0.

``magnitude="signed"`` is the ablation μ(x) = x: a negative lane then turns by half a circle
more, so content shifts the phase after all.

Source: Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings
(Gopalakrishnan et al., 2025), §3. Confirmed: against x-transformers
(tests/test_catalogue_rotary.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Rotary, token_positions, wide_dtype
from ropewalk.encodings.claims import ROTATION_CLAIMS, ROTATION_REASONS
from ropewalk.encodings.tables import spread
from ropewalk.encodings.width import check_dim, empty_parameter
from ropewalk.kernels.phases import phase_tables
from ropewalk.kernels.plain import compute_dtype
from ropewalk.spectra import exact_angle, geometric

PhaseStart = Literal["zero", "uniform"]
PHASE_STARTS: tuple[PhaseStart, ...] = ("zero", "uniform")
Magnitude = Literal["softplus", "signed"]
MAGNITUDES: tuple[Magnitude, ...] = ("softplus", "signed")


class PoPE(Rotary):
    """Polar coordinates: a magnitude per lane and a phase per position.

    Args:
        head_dim: width d of a head, any ≥ 1; encoded q and k have 2d.
        base: of the d frequencies base^(−c/d), radians per position.
        heads: KV heads with phases δ of their own, each serving a group of heads; 1 for all.
        start: δ at the start: ``"zero"``, or ``"uniform"`` in [−2π, 0].
        magnitude: μ: ``"softplus"``, or ``"signed"`` for x itself.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    steps: Tensor

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        *,
        heads: int = 1,
        start: PhaseStart = "zero",
        magnitude: Magnitude = "softplus",
    ) -> None:
        super().__init__()
        self.head_dim = check_dim(head_dim, "head_dim")
        self.heads = check_dim(heads, "heads")
        if start not in PHASE_STARTS:
            raise ValueError(f"start={start!r} is unknown; use one of {PHASE_STARTS}")
        if magnitude not in MAGNITUDES:
            raise ValueError(f"magnitude={magnitude!r} is unknown; use one of {MAGNITUDES}")
        self.start, self.magnitude = start, magnitude
        self.spectrum = geometric(2 * self.head_dim, base)
        self.delta = empty_parameter((self.heads, self.head_dim))
        self.register_derived()
        self.reset_parameters()

    @property
    def encoded_dim(self) -> int:
        """2 · head_dim."""
        return 2 * self.head_dim

    def reset_parameters(self) -> None:
        """Set δ to its start."""
        if self.start == "zero":
            nn.init.zeros_(self.delta)
        else:
            nn.init.uniform_(self.delta, -2 * math.pi, 0.0)
        super().reset_parameters()

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` as ``[..., H, T, 2·head_dim]``."""
        return self._polar(q, *spread(q, *self._tables(q, positions, offset)))

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]`` with its phases δ, ``[..., 2·head_dim]``."""
        cos, sin = self._tables(k, positions, offset)
        delta = self.delta.to(k.device, cos.dtype).clamp(-2 * math.pi, 0.0)
        if self.heads > 1:
            cos, sin, delta = cos.unsqueeze(-3), sin.unsqueeze(-3), delta[:, None]
        aside, along = delta.sin(), delta.cos()
        turned = cos * along - sin * aside, sin * along + cos * aside
        return self._polar(k, *spread(k, *turned, per_head=self.heads > 1))

    def _tables(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if x.dim() < 2 or x.shape[-1] != self.head_dim:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; this encoding takes [..., heads, tokens, "
                f"{self.head_dim}]"
            )
        compute_dtype(x.dtype)
        where = token_positions(positions, offset, x, self.axes)
        steps = self.steps if self.steps.device == x.device else self.derive(x.device)["steps"]
        return phase_tables(where, steps, 1.0, wide_dtype(x.dtype))

    def _polar(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        size = x.to(cos.dtype)
        if self.magnitude == "softplus":
            size = functional.softplus(size, threshold=40.0)  # beyond it equals x
        return torch.cat(((size * cos).to(x.dtype), (size * sin).to(x.dtype)), dim=-1)

    def reference(self, x: Sequence[float], position: int | Sequence[int]) -> list[float]:
        """One vector transformed as q by a literal float64 loop, 2·head_dim numbers."""
        return self._literal(x, position, [0.0] * self.head_dim)

    def reference_k(
        self, x: Sequence[float], position: int | Sequence[int], head: int = 0
    ) -> list[float]:
        """One vector of KV head ``head`` transformed as k."""
        delta = self.delta.detach()[head % self.heads].to("cpu", torch.float64).tolist()
        return self._literal(x, position, [min(0.0, max(-2 * math.pi, d)) for d in delta])

    def _literal(
        self, x: Sequence[float], position: int | Sequence[int], delta: list[float]
    ) -> list[float]:
        where = position if isinstance(position, int) else position[0]
        angles = [
            exact_angle(where, f) + d for f, d in zip(self.spectrum.inv_freq, delta, strict=True)
        ]
        sizes = list(x)
        if self.magnitude == "softplus":
            sizes = [math.log1p(math.exp(-abs(v))) + max(v, 0.0) for v in x]
        return [
            s * turn(t) for turn in (math.cos, math.sin) for s, t in zip(sizes, angles, strict=True)
        ]

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The int64 steps of the d frequencies."""
        return {"steps": self.spectrum.on(device).tensor}

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return (
            f"head_dim={self.head_dim}, heads={self.heads}, start={self.start!r}, "
            f"magnitude={self.magnitude!r}"
        )


register(
    Spec(
        name="pope",
        family="rotary",
        factory=PoPE,
        title="polar: magnitudes from content, phases from position; twice as wide",
        equation=r"q_c = \mu(x_q)_c\,e^{i p\theta_c},\quad k_c = \mu(x_k)_c\,"
        r"e^{i(p\theta_c + \delta_c)},\quad \mu(x) = \ln(1 + e^x)",
        source='Gopalakrishnan et al. (2025), Decoupling the "What" and "Where" With Polar '
        "Coordinate Positional Embeddings",
        config={"head_dim": 64},
        claims={**ROTATION_CLAIMS, "norm": False},
        reasons={
            **ROTATION_REASONS,
            "linear": "in the encoded vector: M_k turns each (cos, sin) by kθ",
            "norm": "that of μ(x), the same at every position, and not of x",
        },
        waivers={"gradient": "δ starts at 0, the edge of its range, where it can only fall"},
        variants={
            "phases anywhere": Variant(
                {"start": "uniform"},
                {"deterministic": False},
                "phases are drawn at random",
                {"gradient": ""},
            ),
            "signed": Variant({"magnitude": "signed"}, {"norm": True}, "|μ(x)| = |x|"),
        },
    )
)
