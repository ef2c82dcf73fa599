r"""TM-RoPE: M-RoPE whose time is a clock, so that sound and video share it.

.. math:: \text{angle}_c = p_{a(c)} \cdot θ_c, \qquad
          t = s + \lfloor \text{seconds} / 0.04 \rfloor

One temporal id is 40 ms. A token of sound is one id long; a frame of a video has the id of its
time, whatever the frame rate; both start at the same s and take turns in chunks of two seconds
(:meth:`TMRoPE.positions_of`).

Source: Qwen2.5-Omni Technical Report (Xu et al., 2025), "Time-aligned Multimodal RoPE". Confirmed:
25 ids a second, the turns of sound and video, and every position, as in transformers' code of
Qwen2.5-Omni (tests/test_multimodal.py). It multiplies seconds and rate in float32, which decides
on which side a time falls that is a whole id. Qwen3-Omni has ``order="interleaved"``, 13 ids a
second and fractional times: ``mrope(…, unit=2**-20)`` with the family ``"qwen3_omni"``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.catalog import Spec, register
from ropewalk.encodings.rotary.mrope import SECTION_CLAIMS, SECTION_REASONS, section_spectrum
from ropewalk.encodings.rotary.rope import RoPE, Scaling
from ropewalk.positions import Placed, Span, family, multimodal
from ropewalk.spectra import Layout
from ropewalk.spectra.arguments import check_number
from ropewalk.spectra.sections import Order


class TMRoPE(RoPE):
    """M-RoPE with time in ids of 40 ms.

    Args:
        head_dim: width of a head, even.
        base: rope_theta; 1e6 in Qwen2.5-Omni.
        sections: pairs of T, H and W; [16, 24, 24] of 64, or their proportion, if None.
        order: ``"blocks"`` in Qwen2.5-Omni, or another of ``mrope``.
        ids_per_second: 25, that is 40 ms an id.
        layout: how lanes pair.
        scaling: applied before the pairs are given to axes, as in ``mrope``.

    Raises:
        TypeError, ValueError: a value is out of range, or sections do not sum to the pairs.
    """

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        *,
        sections: Sequence[int] | None = None,
        order: Order = "blocks",
        ids_per_second: float = 25.0,
        layout: Layout = "half",
        scaling: Scaling = None,
    ) -> None:
        super().__init__(
            section_spectrum(head_dim, base, sections, order, layout=layout, scaling=scaling)
        )
        self.ids_per_second = check_number("ids_per_second", ids_per_second, above=0)

    def positions_of(self, spans: Sequence[Span], *, spatial_merge: int = 2) -> Placed:
        """The positions of a sequence, int64 ``[tokens, 3]``, and the next text position.

        Args:
            spans: text, images, videos, sound, and videos with their sound, see
                :func:`ropewalk.positions.multimodal`.
            spatial_merge: patches merged along height and along width.
        """
        rules = family("qwen2_5_omni", rate=self.ids_per_second, spatial_merge=spatial_merge)
        return multimodal(spans, rules)


register(
    Spec(
        name="tm_rope",
        family="rotary",
        factory=TMRoPE,
        title="rotary along time, height and width, with time in ids of 40 ms",
        equation=r"\mathrm{angle}_c = p_{a(c)}\,\theta_c,\quad "
        r"t = s + \lfloor \mathrm{seconds} / 0.04 \rfloor",
        source="Xu et al. (2025), Qwen2.5-Omni Technical Report",
        config={"head_dim": 64},
        claims=SECTION_CLAIMS,
        reasons=SECTION_REASONS,
    )
)
