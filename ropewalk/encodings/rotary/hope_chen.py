r"""HoPE (high-frequency): pairs that complete no turn within a training text do not turn.

.. math:: θ'_c = θ_c \;\text{ if } θ_c \ge 2π / L, \qquad 0 \text{ else}

with θ_c = base^(−2c/d) in radians per position and L the training length in tokens. The pairs that
stand carry content alone.

Source: HoPE: A Novel Positional Encoding Without Long-Term Decay for Enhanced Context Awareness and
Extrapolation (Chen et al., 2024), §5. Confirmed: the cut at one turn within L stands so in two
independent accounts of the paper, one of them code; the paper's own words on it were not read.
"""

from __future__ import annotations

from ropewalk import spectra
from ropewalk.catalog import Spec, Variant, register
from ropewalk.encodings.rotary.rope import ROTATION_CLAIMS, ROTATION_REASONS, RoPE
from ropewalk.spectra import Layout


def hope_chen(
    head_dim: int, base: float = 10000.0, *, length: int = 4096, layout: Layout = "half"
) -> RoPE:
    """RoPE of the pairs that :func:`ropewalk.spectra.full_turns` keeps.

    Args:
        head_dim: width of a head, even.
        base: rope_theta.
        length: tokens of a training sequence.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range.
    """
    return RoPE(spectra.full_turns(spectra.geometric(head_dim, base, layout=layout), length))


register(
    Spec(
        name="hope_chen",
        family="rotary",
        factory=hope_chen,
        title="rotary without the pairs that complete no turn in training",
        equation=r"\theta'_c = \theta_c\;(\theta_c \ge 2\pi / L),\quad \theta'_c = 0\text{ else}",
        source="Chen et al. (2024), HoPE: A Novel Positional Encoding Without Long-Term Decay for "
        "Enhanced Context Awareness and Extrapolation",
        config={"head_dim": 64},
        claims=ROTATION_CLAIMS,
        reasons={**ROTATION_REASONS, "decay": "zero-frequency pairs never decay"},
        variants={
            "nothing turns": Variant(
                {"length": 6},
                {"unique": False},
                "even the fastest pair needs 2π positions for a turn",
                when=lambda config: config.get("length", 4096) <= 6,
            ),
        },
    )
)
