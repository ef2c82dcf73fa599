r"""Resonance RoPE: every pair comes back to where it was after a whole number of positions.

.. math:: λ_c = \mathrm{round}(2π / θ_c), \qquad θ'_c = 2π / λ_c

so that, at positions longer than those of training, the fast pairs meet no angle they have not met.
λ is in positions; θ are those of RoPE, or of any scaling applied first.

All turns together repeat after lcm(λ) positions: six for a single pair, beyond every text for 32.

Source: Resonance RoPE: Improving Context Length Generalization of Large Language Models (Wang et
al., 2024), §4. Confirmed: by the authors' code, which rounds the same wavelengths and takes
positions modulo them; 64 of 64 wavelengths differ at head_dim 128 and 125 of 128 at 256
(tests/test_catalogue_rotary.py). What a frequency cannot say of that modulus is in
:func:`ropewalk.spectra.resonance`.
"""

from __future__ import annotations

from ropewalk import spectra
from ropewalk.catalog import Spec, Variant, register
from ropewalk.encodings.rotary.rope import ROTATION_CLAIMS, ROTATION_REASONS, RoPE
from ropewalk.encodings.usual import Scaling
from ropewalk.spectra import Layout
from ropewalk.spectra.rope_parameters import scaled


def resonance(
    head_dim: int,
    base: float = 10000.0,
    *,
    scaling: Scaling = None,
    layout: Layout = "half",
) -> RoPE:
    """RoPE of the :func:`ropewalk.spectra.resonance` of the usual spectrum.

    Args:
        head_dim: width of a head, even.
        base: rope_theta.
        scaling: applied before wavelengths are rounded, as for :class:`RoPE`.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range.
    """
    plain = scaled(spectra.geometric(head_dim, base, layout=layout), scaling)
    return RoPE(spectra.resonance(plain))


register(
    Spec(
        name="resonance",
        family="rotary",
        factory=resonance,
        title="rotary with wavelengths rounded to whole positions",
        equation=r"\lambda_c = \mathrm{round}(2\pi / \theta_c),\quad \theta'_c = 2\pi / \lambda_c",
        source="Wang et al. (2024), Resonance RoPE: Improving Context Length Generalization of "
        "Large Language Models",
        config={"head_dim": 64},
        claims=ROTATION_CLAIMS,
        reasons={**ROTATION_REASONS, "unique": "the period is lcm(λ), beyond every text"},
        variants={
            "one pair": Variant(
                {"head_dim": 2},
                {"unique": False},
                "a single wavelength of 6 positions comes back after 6",
                when=lambda config: config["head_dim"] == 2,
            ),
        },
    )
)
