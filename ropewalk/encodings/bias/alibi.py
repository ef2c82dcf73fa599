r"""ALiBi: each head fades keys linearly with distance.

.. math:: b_h(i, j) = -m_h\,|i - j|, \qquad m_h = \begin{cases} 2^{-8h/n} & h \le n \\
   2^{-4(2(h - n) - 1)/n} & h > n \end{cases}, \qquad n = 2^{\lfloor \log_2 H \rfloor}

for heads h = 1 … H. Where H is a power of two, n = H and the first case is all. For other H the
first n heads have the slopes of n heads, and the rest every second slope of 2n heads. A plain
geometric sequence for any H is another convention and is not this one.

Source: Train Short, Test Long (Press et al., 2021), §3 and the authors' code for H ≠ 2^k.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.catalog import Spec, register
from ropewalk.core import Bias, Factors, integer_positions
from ropewalk.encodings.width import check_dim, check_floating


def alibi_slopes(heads: int) -> list[float]:
    """The slopes m_h of ``heads`` heads, as in the authors' code."""

    def of_power(n: int) -> list[float]:
        return [2.0 ** (-8.0 * (h + 1) / n) for h in range(n)]

    lower = 1 << int(math.log2(check_dim(heads, "heads")))
    return of_power(lower) + of_power(2 * lower)[0::2][: heads - lower]


class ALiBi(Bias):
    """A fixed linear penalty per head.

    Args:
        heads: number of query heads, any ≥ 1.
    """

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = check_dim(heads, "heads")
        self.register_derived()

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The slopes in float64."""
        slopes = torch.tensor(alibi_slopes(self.heads), dtype=torch.float64, device=device)
        return {"slopes": slopes}

    def bias(
        self, q_positions: Tensor, kv_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """``[..., heads, q_tokens, kv_tokens]``, rounded once from the integer distance."""
        q = integer_positions(q_positions, name="q_positions")
        k = integer_positions(kv_positions, name="kv_positions")
        distance = (q[..., :, None] - k[..., None, :]).abs().unsqueeze(-3)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        slopes = self._slopes(q.device).to(wide)[:, None, None]
        return (-slopes * distance.to(wide)).to(check_floating(dtype))

    def reference(self, head: int, q_position: int, k_position: int) -> float:
        """One bias in float64."""
        return -alibi_slopes(self.heads)[head] * abs(q_position - k_position)

    def factors(
        self, q_positions: Tensor, kv_positions: Tensor, *, after: bool = False
    ) -> Factors | None:
        """Rank 1: −m(i − j) = m·(j − c) − m·(i − c), with c where the nearest keys stand."""
        middle = (q_positions[..., :1] + q_positions[..., -1:]) // 2
        nearest = kv_positions[..., :1] if after else kv_positions[..., -1:]
        centre = torch.maximum(nearest, middle) if after else torch.minimum(nearest, middle)
        slopes = self._slopes(kv_positions.device) * (-1.0 if after else 1.0)
        k = (kv_positions - centre).to(torch.float64)[..., None, :, None]
        apart = (q_positions - centre).to(torch.float64)[..., None, :]
        q = slopes[:, None, None].expand(-1, q_positions.shape[-1], 1)
        return Factors(q, k, row=-slopes[:, None] * apart)

    def score(self, head: Tensor, q_position: Tensor, kv_position: Tensor) -> Tensor:
        """−m_h |i − j|, pointwise."""
        slopes = self._slopes(q_position.device).to(torch.float32)
        return -slopes[head] * (q_position - kv_position).abs()

    def _slopes(self, device: torch.device) -> Tensor:
        return self.slopes if self.slopes.device == device else self.derive(device)["slopes"]

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"heads={self.heads}"


register(
    Spec(
        name="alibi",
        family="bias",
        factory=ALiBi,
        title="a linear penalty on distance, one slope per head",
        equation=r"b_h(i, j) = -m_h\,|i - j|,\quad m_h = \begin{cases} 2^{-8h/n} & h \le n \\ "
        r"2^{-4(2(h - n) - 1)/n} & h > n \end{cases},\quad n = 2^{\lfloor \log_2 H \rfloor}",
        source="Press et al. (2021), Train Short, Test Long",
        config={"heads": 8},
        claims={
            "unique": True,
            "relative": True,
            "bounded": False,
            "decay": True,
            "extends": True,
            "deterministic": True,
            "precision": False,
        },
        reasons={
            "unique": "offsets under a causal mask; |i − j| alone is symmetric",
            "linear": "a bias has no code to shift",
            "norm": "q and k are untouched",
            "bounded": "grows with distance",
            "axes": "one axis",
            "precision": "m·Δ rounds by its size: 1.0 at Δ = 8192 in bfloat16 for m = 1/16",
        },
    )
)
