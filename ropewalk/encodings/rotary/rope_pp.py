r"""RoPE++: the imaginary half of the complex score, which RoPE drops.

.. math:: \langle R(m)\,J q,\; R(n)\,k \rangle
          = \sum_c \langle q, k\rangle_c \sin((m-n)θ_c) - (q \times k)_c \cos((m-n)θ_c),
          \qquad J = R\bigl(-\tfrac{π}{2}\bigr)

over pairs c, with ⟨q, k⟩_c = q_a k_a + q_b k_b and (q × k)_c = q_a k_b − q_b k_a. It is the score
of a query turned back by a quarter turn, and keys are those of RoPE: a head and its imaginary twin
share their projections and one cache of keys. The quarter turn exchanges two lanes and a sign, so
nothing is rounded by it.

This encoding is the imaginary head; :meth:`ImaginaryRoPE.encode_both` gives a real and an imaginary
query head for each head of q, side by side, as the paper's model has them. Half as many projected
heads keep the number of attention heads ("EH"), as many double it ("EC").

Source: Beyond Real: Imaginary Extension of Rotary Position Embeddings for Long-Context LLMs (Liu et
al., 2025), §3. Confirmed: by the authors' code, q·sin − rotate_half(q)·cos beside RoPE's own k, and
by the sum above (tests/test_catalogue_rotary.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.catalog import Spec, register
from ropewalk.encodings.literal import turned
from ropewalk.encodings.rotary.rope import ROTATION_CLAIMS, ROTATION_REASONS, RoPE
from ropewalk.kernels.lanes import join
from ropewalk.kernels.rotate import spectrum_lanes
from ropewalk.spectra import Layout, geometric


class ImaginaryRoPE(RoPE):
    """RoPE of keys, and of queries turned back by a quarter turn.

    Args:
        head_dim: width of a head, even.
        base: rope_theta.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    def __init__(self, head_dim: int, base: float = 10000.0, *, layout: Layout = "half") -> None:
        super().__init__(geometric(head_dim, base, layout=layout))

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """Imaginary queries of q ``[..., H, T, head_dim]``."""
        first, second = spectrum_lanes(self.spectrum, q)
        turned = join(q, q[..., second], -q[..., first], (first, second))
        return super().encode_q(turned, positions, offset=offset)

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]`` turned as by RoPE."""
        return super().encode_q(k, positions, offset=offset)

    def encode_both(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """A real and an imaginary query for every head of q, ``[..., 2·H, T, head_dim]``.

        They go to attention with keys that are encoded too::

            y = attend(e.encode_both(q), e.encode_k(k), v)  # [..., 2·H, T, value_dim]
        """
        real = super().encode_q(q, positions, offset=offset)
        imaginary = self.encode_q(q, positions, offset=offset)
        return torch.stack((real, imaginary), dim=-3).flatten(-4, -3)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        *,
        offset: int | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Imaginary queries, and keys, at the same positions."""
        return self._each(q, k, positions, offset)

    def reference(
        self, x: Sequence[float], position: int | Sequence[int], head: int = 0
    ) -> list[float]:
        """One vector transformed as q: a quarter turn back, then the literal rotation."""
        behind = turned(x, self.spectrum, [(0.0, -1.0)] * self.spectrum.pairs)
        return super().reference(behind, position, head)

    def reference_k(
        self, x: Sequence[float], position: int | Sequence[int], head: int = 0
    ) -> list[float]:
        """One vector transformed as k: the literal rotation."""
        return super().reference(x, position, head)


register(
    Spec(
        name="rope_pp",
        family="rotary",
        factory=ImaginaryRoPE,
        title="the imaginary head of RoPE++: queries a quarter turn behind",
        equation=r"\langle R(m) R(-\tfrac{\pi}{2})\,x_q,\; R(n)\,x_k \rangle",
        source="Liu et al. (2025), Beyond Real: Imaginary Extension of Rotary Position Embeddings "
        "for Long-Context LLMs",
        config={"head_dim": 64},
        claims=ROTATION_CLAIMS,
        reasons={**ROTATION_REASONS, "relative": "0 where q = k and Δ = 0"},
    )
)
