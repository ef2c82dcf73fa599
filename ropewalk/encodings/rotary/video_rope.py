r"""VideoRoPE: time on the slowest pairs, height and width in turns on the rest, diagonal positions.

.. math:: \text{angle}_c = p_{a(c)} \cdot θ_c, \qquad
          a(c) = h, w, h, w, \dots, t, \dots, t

Slow pairs do not repeat within a video, so frames far apart are not mistaken for near ones: of 64
pairs 48 alternate between h and w and the last 16 are t's. Positions lie on a diagonal
(:meth:`VideoRoPE.positions_of`): the frame τ of a video that starts at s has

.. math:: t = s + δτ, \qquad h = t + i - \lfloor (H-1)/2 \rfloor,
          \qquad w = t + j - \lfloor (W-1)/2 \rfloor

for row i of H and column j of W, and text goes on at one past the last t.

Source: VideoRoPE: What Makes for Good Video Rotary Position Embedding? (Wei et al., 2025), §4.
Confirmed: order of the axes, δ = 2, the middle of a frame and the next text position from the
authors' code. The paper's equation has H/2, a fraction for odd H, and lets text go on at s + δT
for T frames, δ − 1 later than their code; here it is as in the code that their models ran.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.catalog import Spec, register
from ropewalk.encodings.rotary.mrope import SECTION_CLAIMS, SECTION_REASONS, section_spectrum
from ropewalk.encodings.rotary.rope import RoPE, Scaling
from ropewalk.positions import Placed, Span, family, multimodal
from ropewalk.spectra import Layout
from ropewalk.spectra.arguments import check_even, check_number


def quarter(head_dim: int) -> tuple[int, int, int]:
    """Pairs of H, W and T where T has a quarter of them.

    Raises:
        TypeError, ValueError: head_dim is not even, or below 6.
    """
    pairs = check_even("head_dim", head_dim, at_least=6) // 2
    time = max(1, pairs // 4)
    return pairs - time - (pairs - time) // 2, (pairs - time) // 2, time


class VideoRoPE(RoPE):
    """M-RoPE that gives time the slowest pairs, with its diagonal positions.

    Args:
        head_dim: width of a head, even.
        base: rope_theta; 1e6 in the authors' models.
        sections: pairs of H, W and T; T has a quarter if None, [24, 24, 16] of 64.
        temporal_scale: δ, positions from frame to frame; 2 in the paper.
        layout: how lanes pair.
        scaling: applied before the pairs are given to axes, as in ``mrope``.
        unit: size of one integer position; smaller where δ is no whole number.

    Raises:
        TypeError, ValueError: a value is out of range, or sections do not sum to the pairs.
    """

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        *,
        sections: Sequence[int] | None = None,
        temporal_scale: float = 2.0,
        layout: Layout = "half",
        scaling: Scaling = None,
        unit: float = 1.0,
    ) -> None:
        own = quarter(head_dim) if sections is None else sections
        super().__init__(
            section_spectrum(
                head_dim, base, own, "alternating", layout=layout, scaling=scaling, unit=unit
            )
        )
        self.temporal_scale = check_number("temporal_scale", temporal_scale, above=0)

    def positions_of(self, spans: Sequence[Span], *, spatial_merge: int = 2) -> Placed:
        """The positions of a sequence, int64 ``[tokens, 3]``, and the next text position.

        Args:
            spans: text, images and videos, see :func:`ropewalk.positions.multimodal`.
            spatial_merge: patches merged along height and along width.
        """
        rules = family(
            "video_rope",
            rate=self.temporal_scale,
            spatial_merge=spatial_merge,
            unit=self.spectrum.unit,
        )
        return multimodal(spans, rules)


register(
    Spec(
        name="video_rope",
        family="rotary",
        factory=VideoRoPE,
        title="rotary with time on the slowest pairs and frames on a diagonal",
        equation=r"\mathrm{angle}_c = p_{a(c)}\,\theta_c,\quad a = h, w, h, w, \dots, t, \dots, t",
        source="Wei et al. (2025), VideoRoPE: What Makes for Good Video Rotary Position Embedding?",
        config={"head_dim": 64},
        claims=SECTION_CLAIMS,
        reasons=SECTION_REASONS,
    )
)
