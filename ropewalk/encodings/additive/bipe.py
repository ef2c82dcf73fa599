r"""BiPE: the place inside a segment is added, the segment's number enters attention.

.. math:: x_t + E(p_t), \qquad \text{score}(i, j) = f\bigl(q_i, k_j, s_i - s_j\bigr)

with s the segment ids and p the places inside segments of :func:`ropewalk.positions.bilevel`; E is
a table of 1024 rows (or sinusoidal), f is RoPE or ALiBi on segment ids. Segments are few and
short, so a longer text brings larger s but no p that was not trained.

The encoding itself is the additive part; its ``inter`` is the other, for every layer::

    segments, places = ropewalk.positions.bilevel(boundaries)  # True at "." and newline
    x = bipe(x, places)
    y = ropewalk.attend(q, k, v, bipe.inter, q_positions=segments, kv_positions=segments)

Segment ids are positions there, not ``attend``'s ``segments=``: attention crosses segments.

Source: Two Stones Hit One Bird: Bilevel Positional Encoding for Better Length Extrapolation (He et
al., 2024), §3. Confirmed in the authors' code: the boundary token belongs to the segment it ends,
places restart at 0 and stop at 1023, table values start from N(0, 0.02²), RoPE has base 10000, and
ALiBi 96 times the reference slopes, since segments are so much fewer than tokens. Their table's
last row, which all places from 1023 on share, is its padding row: zero, and not trained; here it is
trained like the others.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Additive, Bias, Rotary, wide_dtype
from ropewalk.encodings.additive.learned import Learned
from ropewalk.encodings.additive.sinusoidal import Sinusoidal
from ropewalk.encodings.bias.alibi import ALiBi
from ropewalk.encodings.rotary.rope import RoPE
from ropewalk.encodings.width import check_dim, check_floating
from ropewalk.spectra.arguments import check_even, check_number, check_option

INTRA = ("learned", "sinusoidal")
INTER = ("rope", "alibi")
STEEPER = 96.0
"""By what the authors multiply ALiBi's slopes for segments."""


class SegmentALiBi(Bias):
    """ALiBi on segment ids, steeper by ``factor``.

    Args:
        heads: number of query heads.
        factor: multiplies the reference slopes, above 0.
    """

    def __init__(self, heads: int, factor: float = STEEPER) -> None:
        super().__init__()
        self.alibi, self.heads = ALiBi(heads), heads
        self.factor = check_number("factor", factor, above=0)

    def bias(
        self, q_positions: Tensor, kv_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """``[..., heads, q_tokens, kv_tokens]`` of segment ids."""
        wide = wide_dtype(check_floating(dtype))
        return (self.alibi.bias(q_positions, kv_positions, wide) * self.factor).to(dtype)

    def reference(self, head: int, q_position: int, k_position: int) -> float:
        """One bias in float64."""
        return self.factor * self.alibi.reference(head, q_position, k_position)


class BiPE(Additive):
    """An additive encoding of places in a segment, and ``inter`` for segment ids.

    Args:
        intra: additive, one axis.
        inter: rotary or bias, one axis; give it to ``attend`` with segment ids as positions.

    Raises:
        TypeError, ValueError: a part of another family, or with several axes.
    """

    def __init__(self, intra: Additive, inter: Rotary | Bias) -> None:
        super().__init__()
        if not isinstance(intra, Additive) or not isinstance(inter, (Rotary, Bias)):
            raise TypeError(
                f"intra={type(intra).__name__} must be additive and inter={type(inter).__name__} "
                "rotary or a bias"
            )
        if (intra.axes, inter.axes) != (1, 1):
            raise ValueError(
                f"intra has axes={intra.axes} and inter axes={inter.axes}; both levels have one"
            )
        self.intra, self.inter, self.dim = intra, inter, intra.dim

    @property
    def positions(self) -> Any:
        """How many places the table serves; None where there is no table."""
        return getattr(self.intra, "positions", None)

    def encode(
        self,
        positions: Tensor,
        *,
        length: int | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """``[..., T, dim]`` of places inside segments.

        Raises:
            ValueError: a place is outside the table; ``bilevel(…, cap=…)`` keeps them inside.
        """
        return self.intra.encode(positions, length=length, dtype=dtype)

    def reference(self, position: int, length: int | None = None) -> list[float]:
        """The code of one place."""
        return self.intra.reference(position, length)

    def shift_matrix(self, k: int) -> Tensor | None:
        """That of the additive part."""
        return self.intra.shift_matrix(k)

    def reset_parameters(self) -> None:
        """Draw new values for both parts."""
        for part in (self.intra, self.inter):
            part.reset_parameters()
        super().reset_parameters()


def bipe(
    dim: int,
    heads: int = 8,
    *,
    inter: Literal["rope", "alibi"] = "rope",
    intra: Literal["learned", "sinusoidal"] = "learned",
    length: int = 1024,
    head_dim: int | None = None,
    base: float = 10000.0,
) -> BiPE:
    """BiPE by names.

    Args:
        dim: width of embeddings.
        heads: query heads.
        inter: ``"rope"`` or ``"alibi"`` (:class:`SegmentALiBi`) on segment ids.
        intra: ``"learned"`` or ``"sinusoidal"`` on places.
        length: rows of the table, the cap of ``bilevel`` + 1; the sinusoidal form has none.
        head_dim: of RoPE; dim/heads if None.
        base: of RoPE.

    Raises:
        TypeError, ValueError: a value is out of range, or dim is no multiple of heads.

    Example:
        >>> encoding = bipe(768, heads=12)
        >>> segments, places = ropewalk.positions.bilevel(torch.isin(ids, ends))
        >>> x = encoding(embed(ids), places)
        >>> y = ropewalk.attend(
        ...     q, k, v, encoding.inter, q_positions=segments, kv_positions=segments
        ... )
    """
    check_option("inter", inter, INTER)
    check_option("intra", intra, INTRA)
    check_dim(dim)
    check_dim(heads, "heads")
    if head_dim is None and inter == "rope" and dim % heads:
        raise ValueError(f"heads={heads} does not divide dim={dim}; give head_dim=")
    width = dim // heads if head_dim is None else check_even("head_dim", head_dim)
    return BiPE(
        Learned(dim, length) if intra == "learned" else Sinusoidal(dim),
        SegmentALiBi(heads) if inter == "alibi" else RoPE(width, base),
    )


register(
    Spec(
        name="bipe",
        family="additive",
        factory=bipe,
        title="two levels: places in a segment are added, segments turn or fade",
        equation=r"x_t + E(p_t),\qquad \mathrm{score}(i, j) = f(q_i, k_j, s_i - s_j)",
        source="He et al. (2024), Two Stones Hit One Bird: Bilevel Positional Encoding for Better "
        "Length Extrapolation",
        config={"dim": 64, "heads": 8},
        claims={
            "unique": True,
            "linear": False,
            "relative": False,
            "norm": False,
            "extends": False,
            "deterministic": False,
            "precision": True,
        },
        reasons={
            "unique": "places inside a segment; the segment enters attention",
            "linear": "rows are free",
            "relative": "places are absolute; scores of inter are relative in segment ids",
            "norm": "the code is added",
            "bounded": "a finite table",
            "decay": "additive codes have no score of their own; ALiBi as inter decays in segments",
            "extends": "the table ends; places are capped to stay inside it",
            "deterministic": "drawn at random, then trained",
            "axes": "one axis on each level",
            "precision": "rounding is relative to values of one size",
        },
        variants={
            "ALiBi between segments": Variant({"inter": "alibi"}),
            "sinusoidal places": Variant(
                {"intra": "sinusoidal"},
                {"linear": True, "bounded": True, "extends": True, "deterministic": True},
                "places have no table to end",
                when=lambda config: config.get("intra") == "sinusoidal",
            ),
            "short table": Variant(
                {"length": 64},
                {"linear": None, "relative": None, "precision": None},
                "too few rows to measure it",
                when=lambda config: (
                    config.get("intra", "learned") == "learned"
                    and config.get("length", 1024) < 16 * config["dim"]
                ),
            ),
        },
    )
)
