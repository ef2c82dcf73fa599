r"""M-RoPE: every pair turns with time, with height or with width.

.. math:: \text{angle}_c = p_{a(c)} \cdot θ_c, \qquad θ_c = \mathrm{base}^{-2c/d},
          \qquad a(c) \in \{t, h, w\}

One ladder of frequencies serves all three axes: a pair keeps the frequency that it has in text, and
``sections`` say whose it is. Text has t = h = w, so there M-RoPE is RoPE, whatever the order:

- ``"blocks"`` T…TH…HW…W: Qwen2-VL, Qwen2.5-VL and Qwen2.5-Omni [16, 24, 24]; GLM-4V [8, 12, 12]
  over 64 of 128 lanes, interleaved layout. Time has the fastest pairs.
- ``"interleaved"`` THWTHW…TTTT: Qwen3-VL [24, 20, 20]; Qwen3.5 [11, 11, 10] over 64 of 256 lanes.
  Each axis has fast and slow pairs.
- ``"alternating"`` HWHW…TTTT: ERNIE-4.5-VL, sections H, W, T [22, 22, 20], interleaved layout.
  Time has the slowest pairs.

Positions ``[..., tokens, 3]`` are t, h, w in all of them; :func:`ropewalk.positions.multimodal`
builds them.

Source: Qwen2-VL (Wang et al., 2024), §2.1; Qwen3-VL (2025); ERNIE-4.5-VL (Baidu, 2025). Confirmed:
q and k as in transformers' own code of each of these models, and the same frequencies as
:meth:`RoPE.from_config` finds in their configs (tests/test_catalogue_multimodal.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.catalog import Spec, Variant, register
from ropewalk.encodings.rotary.rope import ROTATION_CLAIMS, ROTATION_REASONS, RoPE, Scaling
from ropewalk.spectra import Layout, Spectrum, geometric, sectioned
from ropewalk.spectra.arguments import check_number
from ropewalk.spectra.rope_parameters import scaled
from ropewalk.spectra.sections import Order, usual_sections

SECTION_CLAIMS: dict[str, bool | None] = {**ROTATION_CLAIMS, "axes": True}
"""What rotations by sections hold when each axis has pairs."""

SECTION_REASONS = {"decay": ROTATION_REASONS["decay"]}


def section_spectrum(
    head_dim: int,
    base: float,
    sections: Sequence[int] | None,
    order: Order,
    *,
    layout: Layout = "half",
    rotary_dim: int | None = None,
    scaling: Scaling = None,
    unit: float = 1.0,
) -> Spectrum:
    """The spectrum of :func:`mrope`; arguments as there."""
    line = scaled(geometric(head_dim, base, rotary_dim=rotary_dim, layout=layout), scaling)
    line = line.replace(unit=check_number("unit", unit, above=0))
    own = usual_sections(line.pairs, order) if sections is None else sections
    return sectioned(line, own, order)


def mrope(
    head_dim: int,
    base: float = 10000.0,
    *,
    sections: Sequence[int] | None = None,
    order: Order = "blocks",
    layout: Layout = "half",
    rotary_dim: int | None = None,
    scaling: Scaling = None,
    unit: float = 1.0,
) -> RoPE:
    """RoPE along time, height and width by sections of the pairs.

    Args:
        head_dim: width of a head, even.
        base: rope_theta; 1e6 in Qwen2-VL, 5e5 in ERNIE-4.5-VL.
        sections: pairs of each axis, T, H, W (``mrope_section``); H, W, T if alternating. The
            proportions of the models above if None. An axis with none is not told apart.
        order: ``"blocks"``, ``"interleaved"`` or ``"alternating"``.
        layout: how lanes pair.
        rotary_dim: rotated lanes; all if None.
        scaling: a function on the one-axis spectrum, or a ``rope_parameters`` dictionary; applied
            before the pairs are given to axes.
        unit: size of one integer position, that of the family of positions: 2**-20 for the
            fractional times of Qwen3-Omni.

    Raises:
        TypeError, ValueError: a value is out of range; sections that do not sum to the pairs, or
            cannot be interleaved.
    """
    return RoPE(
        section_spectrum(
            head_dim,
            base,
            sections,
            order,
            layout=layout,
            rotary_dim=rotary_dim,
            scaling=scaling,
            unit=unit,
        )
    )


register(
    Spec(
        name="mrope",
        family="rotary",
        factory=mrope,
        title="rotary along time, height and width, by sections of the pairs",
        equation=r"\mathrm{angle}_c = p_{a(c)}\,\theta_c,\quad a(c) \in \{t, h, w\}",
        source="Wang et al. (2024), Qwen2-VL: Enhancing Vision-Language Model's Perception of the "
        "World at Any Resolution",
        config={"head_dim": 64},
        claims=SECTION_CLAIMS,
        reasons=SECTION_REASONS,
        variants={
            "an axis without pairs": Variant(
                {"sections": (0, 16, 16)},
                {"unique": False, "axes": False},
                "places that differ only along that axis share their code",
                when=lambda config: 0 in (config.get("sections") or ()),
            ),
        },
    )
)
