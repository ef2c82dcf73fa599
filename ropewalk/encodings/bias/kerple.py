r"""KERPLE: a penalty that grows with a learned logarithm or power of distance.

.. math:: \text{log: } b_h = -p_h \ln(1 + a_h\,|Δ|), \qquad
   \text{power: } b_h = -a_h\,|Δ|^{p_h}, \quad p_h \le 2

Both are conditionally positive definite kernels, made positive by a constant that softmax drops.
a and p are learned, one each per head, and held at .01 or above (p of the power kernel at 2 or
below).

The authors' code clamps the stored values at every call. Here nothing is written in a call: the
clamped value is used, with the gradient of the stored one, and :meth:`Kerple.hold_` clamps what is
stored; called after each step of an optimizer it gives their training to the letter. They draw a
from U[0, 1) and p from U[0, 2) and lift what is below .01; here both are drawn from .01 up, which
differs by that 1 % (½ %) of draws.

Source: KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation (Chi et al.,
2022), equations 5 and 6, and the authors' code. Confirmed: kernels, initial values and clamps with
the authors' ``ParallelKerpleLog`` and ``ParallelKerplePower``; the kernels that multiply logits
(``wei_``) are not here.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Bias
from ropewalk.encodings.offsets import offsets
from ropewalk.encodings.width import check_dim, check_floating, empty_parameter

Kernel = Literal["log", "power"]
KERNELS: tuple[Kernel, ...] = ("log", "power")
LEAST = 0.01
STEEPEST = 2.0


def _held(x: Tensor, low: float, high: float) -> Tensor:
    """x within its bounds, with the gradient of x."""
    return x + (x.clamp(low, high) - x).detach()


class Kerple(Bias):
    """A learned logarithmic or power penalty per head.

    Args:
        heads: number of query heads.
        kernel: ``"log"`` or ``"power"``.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        heads: int,
        kernel: Kernel = "log",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.heads = check_dim(heads, "heads")
        if kernel not in KERNELS:
            raise ValueError(f"kernel={kernel!r} is unknown; use one of {KERNELS}")
        self.kernel = kernel
        self.a = empty_parameter((heads,), device, dtype)
        self.p = empty_parameter((heads,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values."""
        nn.init.uniform_(self.a, LEAST, 1.0)
        nn.init.uniform_(self.p, LEAST, 2.0)
        super().reset_parameters()

    def hold_(self) -> None:
        """Clamp the stored values to the range that is used; after an optimizer's step."""
        with torch.no_grad():
            self.a.clamp_(min=LEAST)
            self.p.clamp_(LEAST, self._most)

    def bias(
        self, q_positions: Tensor, kv_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """``[..., heads, q_tokens, kv_tokens]``, computed in float64 and rounded once."""
        check_floating(dtype)
        distance = offsets(q_positions, kv_positions).abs().to(torch.float64)
        a, p = (
            _held(x.to(torch.float64), LEAST, most)[:, None, None]
            for x, most in ((self.a, math.inf), (self.p, self._most))
        )
        if self.kernel == "log":
            return (-p * torch.log1p(a * distance)).to(dtype)
        # not distance ** p, whose last bit depends on the place in the tensor; 0 ** p is 0
        powers = torch.exp(p * distance.clamp_min(1).log())
        return (-a * powers * distance.sign()).to(dtype)

    @property
    def _most(self) -> float:
        return STEEPEST if self.kernel == "power" else math.inf

    def reference(self, head: int, q_position: int, k_position: int) -> float:
        """One bias in float64."""
        a, p = (x.detach().to(torch.float64)[head].item() for x in (self.a, self.p))
        a, p = max(a, LEAST), min(max(p, LEAST), self._most)
        distance = abs(q_position - k_position)
        return -p * math.log1p(a * distance) if self.kernel == "log" else -a * distance**p

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"heads={self.heads}, kernel={self.kernel!r}"


register(
    Spec(
        name="kerple",
        family="bias",
        factory=Kerple,
        title="a learned logarithmic or power penalty on distance",
        equation=r"b_h = -p_h \ln(1 + a_h |\Delta|) \quad\text{or}\quad "
        r"b_h = -a_h |\Delta|^{p_h},\; p_h \le 2",
        source="Chi et al. (2022), KERPLE: Kernelized Relative Positional Embedding "
        "for Length Extrapolation",
        config={"heads": 8},
        claims={
            "unique": True,
            "relative": True,
            "bounded": False,
            "decay": True,
            "extends": True,
            "deterministic": False,
            "precision": False,
        },
        reasons={
            "unique": "offsets under a causal mask; |i − j| alone is symmetric",
            "linear": "a bias has no code to shift",
            "norm": "q and k are untouched",
            "bounded": "grows with distance",
            "deterministic": "drawn at random, then trained",
            "axes": "one axis",
            "precision": "the penalty rounds by its size, which grows with distance",
        },
        variants={
            "power": Variant(
                {"kernel": "power"},
                {"unique": True},
                "as drawn; were every p near 2, the gap at Δ = 1 would be less than 1e-6 of the "
                "penalty at Δ = 8191",
            ),
        },
    )
)
