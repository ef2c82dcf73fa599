r"""p-RoPE: the lowest frequencies are removed, so that those pairs carry content alone.

.. math:: θ_c = \mathrm{base}^{-2c/d} \;(c < \lfloor r\,d/2 \rfloor), \qquad
   θ_c = 0 \text{ otherwise}

with r the fraction of pairs that turn: the paper's p, which is the position here.

Source: Round and Round We Go! What makes Rotary Positional Encodings useful? (Barbero et al.,
2024), §6; "proportional" in Gemma 4. Confirmed: head_dim 512, r = .25, base 1e6 gives
θ₁ = 0.947464 and lane 0 pairs with lane 256 (tests/test_encodings.py).
"""

from __future__ import annotations

from ropewalk.catalog import Spec, Variant, register
from ropewalk.encodings.rotary.rope import ROTATION_CLAIMS, ROTATION_REASONS, RoPE
from ropewalk.spectra import Layout, proportional


def p_rope(
    head_dim: int,
    base: float = 10000.0,
    *,
    fraction: float = 0.75,
    factor: float = 1.0,
    layout: Layout = "half",
) -> RoPE:
    """RoPE of the :func:`ropewalk.spectra.proportional` spectrum; arguments as there."""
    return RoPE(proportional(head_dim, base, fraction=fraction, factor=factor, layout=layout))


register(
    Spec(
        name="p_rope",
        family="rotary",
        factory=p_rope,
        title="rotary with the lowest frequencies removed",
        equation=r"\theta_c = b^{-2c/d}\;(c < \lfloor r\,d/2 \rfloor),"
        r"\quad \theta_c = 0\text{ else}",
        source="Barbero et al. (2024), Round and Round We Go! "
        "What makes Rotary Positional Encodings useful?",
        config={"head_dim": 64},
        claims=ROTATION_CLAIMS,
        reasons={**ROTATION_REASONS, "decay": "zero-frequency pairs never decay"},
        variants={
            "nothing turns": Variant(
                {"fraction": 0.0},
                {"unique": False},
                "every pair has frequency 0: no position at all",
                when=lambda config: config.get("fraction", 0.75) * config["head_dim"] < 2,
            ),
        },
    )
)
