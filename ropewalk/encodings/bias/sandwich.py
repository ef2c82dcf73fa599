r"""Sandwich: the inner product of two sinusoidal codes, which falls with distance in a wavy line.

.. math:: b_h(Δ) = \frac{H}{8h} \sum_{k} \cos(Δ\,ω_k)
   = \frac{H}{8h} \sum_k \cos(iω_k)\cos(jω_k) + \sin(iω_k)\sin(jω_k), \qquad
   ω_k = \mathrm{base}^{-2k/\bar d},\; k = 0 … \tfrac{\bar d}{2} - 1

for heads h = 1 … H, steepest in the first. ``centred=True`` subtracts d̄/2 from the sum, so that
the bias is 0 at Δ = 0. Softmax drops that constant, but numbers feel it: centred, the bias is small
near and large far away, so it rounds worse with distance, and its largest value below 8192 is not
its largest.

Phases are integers, and the products are added up exactly: each factor is cut into three pieces of
few bits, whose products sum up without rounding in float64, in any order. So the bias is right to
about 1e-14 at any position, a row alone has the bits that it has in the whole, and no memory is
needed beyond the result.

As an inner product it is d̄ channels of q and k too (:meth:`Sandwich.factors`, 3e-14 of the largest
bias off). They spare a GPU the mask; on a CPU ``attend`` takes the numbers, which cost less there.
A ``score`` of FlexAttention would be d̄/2 cosines for each logit, in products of integers that
compilers get wrong, so there is none beside the general one.

Source: Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis (Chi
et al., 2023), §5. Confirmed: the scale, which *divides* by 8h/H, with NVIDIA NeMo's
``SandwichRelativePositionEmbedding`` and with ColossalAI's ``sandwich_pos_bias`` (whose sum lacks
the cosine), both of which centre; the paper's own listing has not been compared. NeMo counts k from
1, which is ``first=1`` here. With k from 0 the smallest gap between offsets ≤ 8192 is 3.9e-8 and
4,029 steps rise, as the literature's figures say; from 1 they are 2.3e-7 and 4,011.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Bias, Factors, integer_positions
from ropewalk.encodings.width import check_dim, check_floating
from ropewalk.kernels.phases import phase_tables
from ropewalk.spectra import Spectrum
from ropewalk.spectra.arguments import check_base, check_even, check_flag, check_int, shown
from ropewalk.spectra.geometric import powers


def pieces(x: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """x, at most 1, as a sum of integer multiples of 2^−bits, 2^−2bits and 2^−3bits, each short."""
    high = torch.round(x * 2.0**bits) / 2.0**bits
    middle = torch.round((x - high) * 2.0 ** (2 * bits)) / 2.0 ** (2 * bits)
    low = torch.round((x - high - middle) * 2.0 ** (3 * bits)) / 2.0 ** (3 * bits)
    return high, middle, low


def exact_products(x: Tensor, y: Tensor) -> Tensor:
    """x yᵀ of float64 ``[..., m, n]`` and ``[..., k, n]`` within ±1, its sums free of rounding."""
    bits = (52 - (x.shape[-1] - 1).bit_length()) // 2
    (a, b, c), (p, q, r) = pieces(x, bits), pieces(y, bits)

    def product(left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Tensor:
        return torch.cat(left, dim=-1) @ torch.cat(right, dim=-1).transpose(-1, -2)

    small = product((a, b), (q, p)) + product((a, b, c), (r, q, p))
    return product((a,), (p,)) + small


class Sandwich(Bias):
    """The scaled inner product of sinusoidal codes.

    Args:
        heads: number of query heads.
        dim: d̄, the width of the codes, even.
        base: of their frequencies.
        first: k of the first frequency, 0 or 1.
        centred: whether d̄/2 is subtracted from the sum.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    steps: Tensor

    def __init__(
        self,
        heads: int,
        *,
        dim: int = 128,
        base: float = 10000.0,
        first: int = 0,
        centred: bool = False,
    ) -> None:
        super().__init__()
        self.heads = check_dim(heads, "heads")
        self.dim = check_even("dim", dim)
        if check_int("first", first) not in (0, 1):
            raise ValueError(f"first={shown(first)} must be 0, or 1 as in NeMo")
        self.first = first
        self.centred = check_flag("centred", centred)
        row = powers(check_base(base), dim // 2 + self.first, dim)[self.first :]
        self.spectrum = Spectrum((row,), dim)
        self.register_derived()

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The int64 steps of the frequencies."""
        return {"steps": self.spectrum.on(device).tensor}

    def bias(
        self, q_positions: Tensor, kv_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """``[..., heads, q_tokens, kv_tokens]``, computed in float64 and rounded once."""
        check_floating(dtype)
        q = integer_positions(q_positions, name="q_positions")
        k = integer_positions(kv_positions, name="kv_positions")
        here, there = self._codes(q), self._codes(k)
        total = exact_products(here, there)
        same = q[..., :, None] == k[..., None, :]
        total = total.masked_fill(same, self.dim / 2) - self._shift
        return (total.unsqueeze(-3) / self._divisors(total.device)).to(dtype)

    def factors(
        self, q_positions: Tensor, kv_positions: Tensor, *, after: bool = False
    ) -> Factors | None:
        """The two codes, d̄ channels: exact on both sides, and what is centred is alike for keys."""
        divisors = self._divisors(q_positions.device)
        q = self._codes(q_positions).unsqueeze(-3) / divisors
        k = self._codes(kv_positions).unsqueeze(-3)
        row = (-self._shift / divisors[..., 0]).expand(q.shape[:-1]) if self.centred else None
        return Factors(q, k, row)

    def _codes(self, positions: Tensor) -> Tensor:
        """Cosines, then sines, float64 ``[..., T, d̄]``."""
        here = self.steps.device == positions.device
        steps = self.steps if here else self.derive(positions.device)["steps"]
        return torch.cat(phase_tables(positions, steps, 1.0, torch.float64), dim=-1)

    def _divisors(self, device: torch.device) -> Tensor:
        """8h/H, float64 ``[heads, 1, 1]``."""
        number = torch.arange(1, self.heads + 1, device=device, dtype=torch.float64)
        return (8 * number / self.heads)[:, None, None]

    @property
    def _shift(self) -> float:
        return self.dim / 2 if self.centred else 0.0

    def reference(self, head: int, q_position: int, k_position: int) -> float:
        """One bias in float64, from the phases of the offset in Python's integers."""
        turn = 2.0**-63 * math.pi
        phases = ((q_position - k_position) * step % 2**64 for step in self.spectrum.steps[0][0])
        total = math.fsum(math.cos(turn * phase) for phase in phases)
        return (total - self._shift) * self.heads / (8 * (head + 1))

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"heads={self.heads}, dim={self.dim}, first={self.first}, centred={self.centred}"


register(
    Spec(
        name="sandwich",
        family="bias",
        factory=Sandwich,
        title="the inner product of two sinusoidal codes",
        equation=r"b_h(\Delta) = \frac{H}{8h} \sum_k \cos(\Delta\,\omega_k),"
        r"\quad \omega_k = \mathrm{base}^{-2k/\bar d}",
        source="Chi et al. (2023), Dissecting Transformer Length Extrapolation "
        "via the Lens of Receptive Field Analysis",
        config={"heads": 8},
        claims={
            "unique": False,
            "relative": True,
            "bounded": True,
            "decay": False,
            "extends": True,
            "deterministic": True,
            "precision": True,
        },
        reasons={
            "unique": "distant offsets come within 4e-8 of one another",
            "linear": "a bias has no code to shift",
            "norm": "q and k are untouched",
            "decay": "it falls in the mean and rises at every other step",
            "axes": "one axis",
        },
        variants={
            "centred": Variant(
                {"centred": True},
                {"bounded": False, "precision": False},
                "within ±d̄·H/8h, yet near keys have small values and far ones large, the "
                "largest of them beyond 8192",
                when=lambda config: config.get("centred", False),
            ),
        },
    )
)
