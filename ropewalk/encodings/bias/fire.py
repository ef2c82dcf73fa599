r"""FIRE: a small network reads the distance as a share of the distance that could be.

.. math:: b_h(i, j) = f_h\!\left(\frac{\ln(1 + |c\,(i - j)|)}
   {\ln(1 + |c| \max(|m| L,\; i)) + ε}\right), \qquad
   f(x) = W_2 \operatorname{ReLU}(W_1 x + β_1) + β_2

with i the position of the query, so that x stays in [0, 1] however long the text is (progressive
interpolation), L a length in tokens, and c, m, W and β learned. Below i = mL the normaliser is
constant and the bias depends on i − j alone; beyond it does not.

A network of one number is a piecewise linear function: its pieces are found once a call, and each
logit costs a search and a product instead of ``width`` of them. Computed in float64 and rounded
once.

Source: Functional Interpolation for Relative Positions Improves Long Context Transformers (Li et
al., 2023), equations 4–6 and appendix code. Confirmed: width 32, c = .1, L = 512, m = 1, ε = 1e-6,
and initial values (those of ``nn.Linear``) with four independent copies of that code, of which the
tests hold their own version. Parameters are named as there, but for ``init_L``, which is ``length``
here, and with one-element c and L_multiplier.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Bias
from ropewalk.encodings.offsets import offsets
from ropewalk.encodings.width import check_dim, check_floating, check_place, empty_parameter
from ropewalk.spectra.arguments import LARGEST, check_number

EPSILON = 1e-6


def linear_pieces(first: nn.Linear, second: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
    """second(relu(first(x))) of one number x as lines between knots, in float64.

    Returns:
        knots ``[width]`` in ascending order, and slopes and intercepts ``[width + 1, outputs]``.
    """
    weight, bias, outer, last = (
        x.to(torch.float64) for x in (first.weight[:, 0], first.bias, second.weight, second.bias)
    )
    knots = torch.where(weight == 0, 0.0, -bias / weight).detach()
    order = knots.argsort()
    weight, bias, outer = weight[order], bias[order], outer[:, order]
    piece = torch.arange(len(knots) + 1, device=knots.device)[:, None]
    after = piece > piece[:-1].T  # [pieces, units]: the piece lies beyond the unit's knot
    on = torch.where(weight == 0, bias > 0, (weight > 0) == after).to(torch.float64)
    return knots[order], on @ (outer * weight).T, on @ (outer * bias).T + last


class Fire(Bias):
    """A learned function of distance ÷ the distance that could be, on a logarithmic scale.

    Args:
        heads: number of query heads.
        width: hidden units.
        c: the initial scale of the logarithm, per token.
        length: L, tokens; multiplied by a learned number that starts at 1.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    def __init__(
        self,
        heads: int,
        *,
        width: int = 32,
        c: float = 0.1,
        length: float = 512.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.heads = check_dim(heads, "heads")
        self.width = check_dim(width, "width")
        self.scale = check_number("c", c, above=0, at_most=LARGEST)
        self.length = check_number("length", length, above=0)
        check_place(device, dtype)
        self.mlp = nn.Sequential(
            nn.Linear(1, width, device=device, dtype=dtype),
            nn.ReLU(),
            nn.Linear(width, heads, device=device, dtype=dtype),
        )
        self.c = empty_parameter((1,), device, dtype)
        self.L_multiplier = empty_parameter((1,), device, dtype)
        self._reset_scalars()

    def _reset_scalars(self) -> None:
        nn.init.constant_(self.c, self.scale)
        nn.init.ones_(self.L_multiplier)

    def reset_parameters(self) -> None:
        """Draw new values; c and the multiplier of L start where they did."""
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        self._reset_scalars()
        super().reset_parameters()

    def bias(
        self, q_positions: Tensor, kv_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """``[..., heads, q_tokens, kv_tokens]``."""
        check_floating(dtype)
        distance = offsets(q_positions, kv_positions).squeeze(-3).abs().to(torch.float64)
        c, multiplier = (x.to(torch.float64).abs() for x in (self.c, self.L_multiplier))
        reach = torch.maximum(q_positions.to(torch.float64), multiplier * self.length)
        x = torch.log1p(c * distance) / (torch.log1p(c * reach) + EPSILON)[..., None]
        first, second = (layer for layer in self.mlp if isinstance(layer, nn.Linear))
        knots, slopes, intercepts = linear_pieces(first, second)
        piece = torch.bucketize(x.detach(), knots)
        slope, intercept = (functional.embedding(piece, table) for table in (slopes, intercepts))
        return (slope * x[..., None] + intercept).movedim(-1, -3).to(dtype)

    def reference(self, head: int, q_position: int, k_position: int) -> float:
        """One bias by the network itself, in float64."""
        c, multiplier = abs(self.c.item()), abs(self.L_multiplier.item())
        reach = max(q_position, multiplier * self.length)
        x = math.log1p(c * abs(q_position - k_position)) / (math.log1p(c * reach) + EPSILON)
        w1, b1, w2, b2 = (p.detach().to(torch.float64).tolist() for p in self.mlp.parameters())
        hidden = [max(w[0] * x + b, 0.0) for w, b in zip(w1, b1, strict=True)]
        return b2[head] + math.fsum(w * h for w, h in zip(w2[head], hidden, strict=True))

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"heads={self.heads}, length={self.length:g}"


register(
    Spec(
        name="fire",
        family="bias",
        factory=Fire,
        title="a small network of distance, as a share of the distance that could be",
        equation=r"b_h(i, j) = f_h\!\left(\frac{\ln(1 + |c\,(i - j)|)}"
        r"{\ln(1 + |c| \max(|m| L,\; i)) + \varepsilon}\right)",
        source="Li et al. (2023), Functional Interpolation for Relative Positions "
        "Improves Long Context Transformers",
        config={"heads": 8},
        claims={
            "unique": True,
            "relative": False,
            "bounded": True,
            "decay": False,
            "extends": True,
            "deterministic": False,
            "precision": True,
        },
        reasons={
            "unique": "as drawn; training may flatten the network",
            "linear": "a bias has no code to shift",
            "norm": "q and k are untouched",
            "relative": "beyond position L the normaliser grows with the query's position",
            "decay": "the network is free",
            "deterministic": "drawn at random, then trained",
            "axes": "one axis",
        },
        variants={
            "below L": Variant(
                {"length": 2.0**22},
                {"relative": True, "bounded": False, "precision": False},
                "the normaliser is constant up to position L, and values change up to there too",
                when=lambda config: config.get("length", 512.0) >= 2.0**22,
            ),
        },
    )
)
