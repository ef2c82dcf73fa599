r"""CoPE (clipped RoPE): the slowest pairs are slowed down smoothly, the last one to a standstill.

.. math:: θ'_c = θ_c \cdot \tfrac{1}{2}\Bigl(1 + \cos\frac{π\,j}{n-1}\Bigr),
          \qquad j = c - (d/2 - n) \ge 0

for the last n = 20 pairs, with θ_c = base^(−2c/d) in radians per position. It is the *frequency*
that is multiplied, not the amplitude of cos and sin, so every pair stays a rotation.

Another scheme of that name, contextual position encoding (Golovneva et al., 2024), is no relation.

Source: CoPE: Clipped RoPE as A Scalable Free Lunch for Long Context LLMs (Li, Ren, Yuille and Wang,
2026), §4. Confirmed: by the authors' code, which multiplies ``inv_freq`` by that mask (n = 20 of
the 64 pairs of Llama-3-8B), and by zeros in its "HardClip".
"""

from __future__ import annotations

from ropewalk import spectra
from ropewalk.catalog import Spec, Variant, register
from ropewalk.encodings.rotary.rope import ROTATION_CLAIMS, ROTATION_REASONS, RoPE
from ropewalk.spectra import Layout


def cope_clipped(
    head_dim: int,
    base: float = 10000.0,
    *,
    pairs: int = 20,
    hard: bool = False,
    layout: Layout = "half",
) -> RoPE:
    """RoPE of the :func:`ropewalk.spectra.clipped` spectrum.

    Args:
        head_dim: width of a head, even.
        base: rope_theta.
        pairs: how many of the slowest pairs are clipped; all if there are fewer.
        hard: stop them all instead of slowing them down.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range.
    """
    plain = spectra.geometric(head_dim, base, layout=layout)
    return RoPE(spectra.clipped(plain, pairs, hard=hard))


register(
    Spec(
        name="cope_clipped",
        family="rotary",
        factory=cope_clipped,
        title="rotary with the lowest frequencies clipped smoothly",
        equation=r"\theta'_c = \theta_c \cdot \tfrac{1}{2}\left(1 + \cos\frac{\pi j}{n - 1}\right),"
        r"\quad j = c - (d/2 - n) \ge 0",
        source="Li et al. (2026), CoPE: Clipped RoPE as A Scalable Free Lunch for Long Context "
        "LLMs",
        config={"head_dim": 64},
        claims=ROTATION_CLAIMS,
        reasons={**ROTATION_REASONS, "decay": "zero-frequency pairs never decay"},
        variants={
            "nothing turns": Variant(
                {"pairs": 32, "hard": True},
                {"unique": False},
                "every pair is clipped to frequency 0",
                when=lambda config: (
                    config.get("hard", False) and config.get("pairs", 20) >= config["head_dim"] // 2
                ),
            ),
        },
    )
)
