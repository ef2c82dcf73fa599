r"""ALiBi: each head fades keys linearly with distance.

.. math:: b_h(i, j) = -m_h\,|i - j|, \qquad m_h = \begin{cases} 2^{-8h/n} & h \le n \\
   2^{-4(2(h - n) - 1)/n} & h > n \end{cases}, \qquad n = 2^{\lfloor \log_2 H \rfloor}

for heads h = 1 … H. Where H is a power of two, n = H and the first case is all. For other H the
first n heads have the slopes of n heads, and the rest every second slope of 2n heads.
``slopes="geometric"`` is another convention: :math:`m_h = 2^{-8h/H}` for any H.

Without a causal mask this is the symmetric form, of which two published departures exist. With
``ahead`` keys after the query have slopes of their own. With ``past_bonus`` s keys before the query
gain s:

.. math:: b_h(i, j) = s\,[j < i] - m_h\,(i - j)^+ - m'_h\,(j - i)^+

Source: Train Short, Test Long (Press et al., 2021), §3 and the authors' code for H ≠ 2^k; the
authors' notes on encoders (attention_with_linear_biases, issue 5, 2021) for the symmetric form.
Confirmed: slopes with transformers' BLOOM, the symmetric form with the notes. Slopes by side were
read in a BERT that follows the notes, where they are learned, drawn from N(−2, 1). A bonus of 0.5
for the lower triangle is reported without its source having been found; whether the diagonal gets
it is not confirmed, and here it does not. The notes' other departure, half of the heads for each
side, is a mask and no bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Bias, Factors, wide_dtype
from ropewalk.encodings.offsets import offsets
from ropewalk.encodings.width import check_dim, check_floating
from ropewalk.spectra.arguments import LARGEST, check_number, shown

Slopes = Literal["authors", "geometric"] | Sequence[float]


def alibi_slopes(heads: int) -> list[float]:
    """The slopes m_h of ``heads`` heads, as in the authors' code."""
    lower = 1 << int(math.log2(check_dim(heads, "heads")))
    return geometric_slopes(lower) + geometric_slopes(2 * lower)[0::2][: heads - lower]


def geometric_slopes(heads: int) -> list[float]:
    """The slopes 2^(−8h/heads), h = 1 … heads."""
    return [2.0 ** (-8.0 * (h + 1) / check_dim(heads, "heads")) for h in range(heads)]


def chosen_slopes(heads: int, slopes: Slopes, name: str = "slopes") -> list[float]:
    """The slopes that ``slopes`` names, or itself: one number ≥ 0 per head.

    Raises:
        TypeError, ValueError: an unknown name, or not a number of at least 0 for each head.
    """
    if isinstance(slopes, str) and slopes == "authors":
        return alibi_slopes(heads)
    if isinstance(slopes, str) and slopes == "geometric":
        return geometric_slopes(heads)
    if isinstance(slopes, (str, bytes)) or not isinstance(slopes, Sequence):
        raise ValueError(
            f"{name}={shown(slopes)} is unknown; use 'authors', 'geometric' or {heads} numbers"
        )
    if len(slopes) != heads:
        raise ValueError(f"{name} holds {len(slopes)} numbers; heads={heads} needs one per head")
    return [
        check_number(f"{name}[{h}]", slope, at_least=0, at_most=LARGEST)
        for h, slope in enumerate(slopes)
    ]


class ALiBi(Bias):
    """A fixed linear penalty per head.

    Args:
        heads: number of query heads, any ≥ 1.
        slopes: ``"authors"``, ``"geometric"``, or a number ≥ 0 per head.
        ahead: slopes of keys after the query, in the same forms; those of keys before it if None.
        past_bonus: added to the logit of keys before the query.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    slopes: Tensor
    slopes_ahead: Tensor

    def __init__(
        self,
        heads: int,
        *,
        slopes: Slopes = "authors",
        ahead: Slopes | None = None,
        past_bonus: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads = check_dim(heads, "heads")
        self._behind = chosen_slopes(heads, slopes)
        self._ahead = None if ahead is None else chosen_slopes(heads, ahead, "ahead")
        self.past_bonus = check_number("past_bonus", past_bonus, at_least=-LARGEST, at_most=LARGEST)
        self.register_derived()

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The slopes in float64."""
        sides = {"slopes": self._behind}
        if self._ahead is not None:
            sides["slopes_ahead"] = self._ahead
        return {
            name: torch.tensor(values, dtype=torch.float64, device=device)
            for name, values in sides.items()
        }

    def bias(
        self, q_positions: Tensor, kv_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """``[..., heads, q_tokens, kv_tokens]``, rounded once from the integer distance."""
        offset = offsets(q_positions, kv_positions)
        wide = torch.float64 if self.past_bonus else wide_dtype(dtype)  # a sum cancels
        behind, ahead = (x.to(wide)[:, None, None] for x in self._sides(offset.device))
        slope = behind if self._ahead is None else torch.where(offset < 0, ahead, behind)
        bias = -slope * offset.abs().to(wide)
        if self.past_bonus:
            bias = bias + self.past_bonus * (offset > 0)
        return bias.to(check_floating(dtype))

    def reference(self, head: int, q_position: int, k_position: int) -> float:
        """One bias in float64."""
        if k_position > q_position:
            return -(self._ahead or self._behind)[head] * (k_position - q_position)
        bonus = self.past_bonus if k_position < q_position else 0.0
        return bonus - self._behind[head] * (q_position - k_position)

    def factors(
        self, q_positions: Tensor, kv_positions: Tensor, *, after: bool = False
    ) -> Factors | None:
        """Rank 1: −m(i − j) = m·(j − c) − m·(i − c), with c where the nearest keys stand.

        None with ``past_bonus``, which the query's own place does not have.
        """
        if self.past_bonus:
            return None
        middle = (q_positions[..., :1] + q_positions[..., -1:]) // 2
        nearest = kv_positions[..., :1] if after else kv_positions[..., -1:]
        centre = torch.maximum(nearest, middle) if after else torch.minimum(nearest, middle)
        behind, ahead = self._sides(kv_positions.device)
        slopes = -ahead if after else behind
        k = (kv_positions - centre).to(torch.float64)[..., None, :, None]
        apart = (q_positions - centre).to(torch.float64)[..., None, :]
        q = slopes[:, None, None].expand(-1, q_positions.shape[-1], 1)
        return Factors(q, k, row=-slopes[:, None] * apart)

    def score(self, head: Tensor, q_position: Tensor, kv_position: Tensor) -> Tensor:
        """−m_h |i − j|, pointwise."""
        behind, ahead = (x.to(torch.float32) for x in self._sides(q_position.device))
        offset = q_position - kv_position
        slope = torch.where(offset < 0, ahead[head], behind[head])
        return self.past_bonus * (offset > 0) - slope * offset.abs()

    def _sides(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The slopes of keys before the query and after it, where positions are."""
        here = self.derive(device) if self.slopes.device != device else dict(self.named_buffers())
        return here["slopes"], here.get("slopes_ahead", here["slopes"])

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"heads={self.heads}"


def _sided(config) -> bool:
    return config.get("past_bonus", 0.0) != 0


def _stated(config) -> Sequence[float]:
    """The slopes that a configuration states as numbers, if it does."""
    slopes = config.get("slopes", "authors")
    return () if isinstance(slopes, str) else slopes


def _flat(config) -> bool:
    slopes = _stated(config)
    return len(slopes) > 0 and not any(slopes) and not _sided(config)


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
        variants={
            "geometric slopes": Variant({"heads": 12, "slopes": "geometric"}),
            "sides told apart": Variant(
                {"heads": 12, "ahead": "geometric", "past_bonus": 0.5},
                {"decay": False},
                "keys just before the query gain on the query's own token",
                when=_sided,
            ),
            "a head without slope": Variant(
                {"heads": 2, "slopes": (0.5, 0.0)},
                {"decay": False},
                "the head of slope 0 sees far keys as well as near ones",
                when=lambda config: 0 in _stated(config),
            ),
            "no slope": Variant(
                {"slopes": (0.0,) * 8},
                {"unique": False, "bounded": True, "decay": False, "precision": True},
                "slopes of 0 are no bias at all",
                when=_flat,
            ),
        },
    )
)
