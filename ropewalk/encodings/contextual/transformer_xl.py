r"""Transformer-XL: sinusoids of the distance, projected, and read by the query.

.. math:: e_{ij} = \frac{(q_i + u)^\top k_j + (q_i + v)^\top W_R\, r(i - j)}{\sqrt d}, \qquad
   r(Δ) = (\sin Δθ_c \,‖\, \cos Δθ_c), \quad θ_c = \mathrm{base}^{-2c/D}

u and v are learned vectors per head, W_R a matrix per head, D the width of r.

The authors multiply with r at every distance and shift the rows of the result. Here the sine and
cosine of a difference are taken apart, which gives the same numbers for any positions:

.. math:: w^\top r(i - j) = \sum_c (w^s_c \sin iθ_c + w^c_c \cos iθ_c) \cos jθ_c
   + (w^c_c \sin iθ_c - w^s_c \cos iθ_c) \sin jθ_c, \qquad w = W_R^\top (q_i + v)

Phases are integers, so r is exact at any distance. Memory for a block of queries grows with the
keys.

Source: Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context (Dai et al., 2019),
§3.3 and the authors' code. Confirmed with copies of that code: the order sines, cosines of r, its
frequencies, a projection without bias, distances counted back from the query, and initial values
N(0, .02) of u, v and W_R; a literal form of its shift agrees (tests/test_catalogue_contextual_
bias.py). Parameters are named as there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, register
from ropewalk.core import Block, Contextual, integer_positions
from ropewalk.encodings.width import check_dim, check_std, empty_parameter
from ropewalk.kernels.phases import phase_tables
from ropewalk.spectra import Spectrum
from ropewalk.spectra.arguments import check_base, check_even
from ropewalk.spectra.geometric import powers


class TransformerXL(Contextual):
    """Projected sinusoids of the distance, with a content and a position bias per head.

    Args:
        heads: number of query heads.
        head_dim: width of q and k.
        dim: D, the width of r, even; heads · head_dim if None.
        base: of the frequencies.
        std: of the initial values.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    steps: Tensor

    def __init__(
        self,
        heads: int,
        head_dim: int,
        *,
        dim: int | None = None,
        base: float = 10000.0,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.heads = check_dim(heads, "heads")
        self.head_dim = check_dim(head_dim, "head_dim")
        self.dim = check_even("dim", heads * head_dim if dim is None else dim)
        self.std = check_std(std)
        self.spectrum = Spectrum((powers(check_base(base), self.dim // 2, self.dim),), self.dim)
        each = (heads, head_dim)
        self.r_w_bias = empty_parameter(each, device, dtype)
        self.r_r_bias = empty_parameter(each, device, dtype)
        self.r_net = nn.Linear(self.dim, heads * head_dim, bias=False, device=device, dtype=dtype)
        self.register_derived()
        self.reset_parameters()

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The int64 steps of the frequencies."""
        return {"steps": self.spectrum.on(device).tensor}

    def reset_parameters(self) -> None:
        """Draw new values."""
        for parameter in (self.r_w_bias, self.r_r_bias, self.r_net.weight):
            nn.init.normal_(parameter, std=self.std)
        super().reset_parameters()

    def bias(self, block: Block) -> Tensor:
        """scale · (u·k + (q + v)·W_R r), ``[..., H, q_tokens, kv_tokens]``.

        Raises:
            ValueError: q has other heads or another width.
        """
        wide = block.q.dtype
        if block.q.shape[-3] != self.heads or block.q.shape[-1] != self.head_dim:
            raise ValueError(
                f"q has {block.q.shape[-3]} heads of {block.q.shape[-1]}; this encoding has "
                f"heads={self.heads}, head_dim={self.head_dim}"
            )
        u, v = (x.to(wide)[:, None, :] for x in (self.r_w_bias, self.r_r_bias))
        projection = self.r_net.weight.to(wide).unflatten(0, (self.heads, self.head_dim))
        read = (block.q + v) @ projection
        sines, cosines = read.chunk(2, dim=-1)
        (cos_i, sin_i), (cos_j, sin_j) = (
            (x.unsqueeze(-3) for x in phase_tables(places, self.steps, 1.0, wide))
            for places in (
                integer_positions(block.q_positions, name="q_positions"),
                integer_positions(block.kv_positions, name="kv_positions"),
            )
        )
        turned = (sines * sin_i + cosines * cos_i, cosines * sin_i - sines * cos_i)
        # contiguous, so that positions of each row and positions of all are multiplied alike
        keys = torch.cat((cos_j, sin_j), dim=-1).transpose(-1, -2).contiguous()
        by_distance = torch.cat(turned, dim=-1) @ keys
        return block.scale * (by_distance + u @ block.k.transpose(-1, -2))

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"heads={self.heads}, head_dim={self.head_dim}, dim={self.dim}"


register(
    Spec(
        name="transformer_xl",
        family="contextual",
        factory=TransformerXL,
        title="projected sinusoids of the distance, read by the query",
        equation=r"e_{ij} = \tfrac{1}{\sqrt d}\,\bigl((q_i + u)^\top k_j + "
        r"(q_i + v)^\top W_R\, r(i - j)\bigr)",
        source="Dai et al. (2019), Transformer-XL: Attentive Language Models "
        "Beyond a Fixed-Length Context",
        config={"heads": 4, "head_dim": 64},
        claims={
            "unique": True,
            "relative": True,
            "bounded": True,
            "decay": False,
            "extends": True,
            "deterministic": False,
            "precision": True,
        },
        reasons={
            "linear": "a bias has no code to shift",
            "norm": "q and k are untouched",
            "decay": "for any distance some query peaks there",
            "deterministic": "drawn at random, then trained",
            "axes": "one axis",
        },
    )
)
