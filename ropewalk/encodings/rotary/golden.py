r"""Golden-gate RoPE: fixed directions, spread evenly over all heads and pairs.

.. math:: \text{angle}_{h,c} = ω_c \, \langle u_{h,c},\, p \rangle, \qquad
          u_{h,c} = (\cos iα, \sin iα), \quad i = h·d/2 + c, \quad α = π(\sqrt 5 - 1)/2

in two dimensions; ω is geometric in radians per coordinate, the first pairs may stand still, and
in more dimensions u follows the generalised golden ratio (:func:`ropewalk.spectra.golden`). An
axial spectrum sees along its axes only; this one sees alike in all directions. The frequencies are
fixed, so phases are exact integers.

Coordinates are the user's: whole indices, or the source's, which keep the aspect ratio in
[−√(W/H), √(W/H)] × [−√(H/W), √(H/W)], from :meth:`GoldenRoPE.coordinates_of` with
``unit=2**-20``.

Source: On N-dimensional Rotary Positional Embeddings (Xiong, 2025), and the author's code.
Confirmed: directions and speeds against mpmath and the author's formulas written out
(tests/test_catalogue_axes.py).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk import positions as builders
from ropewalk import spectra
from ropewalk.catalog import Spec, Variant, register
from ropewalk.encodings.rotary.rope import ROTATION_CLAIMS, ROTATION_REASONS, RoPE
from ropewalk.encodings.width import check_dim
from ropewalk.spectra import Layout


class GoldenRoPE(RoPE):
    """RoPE of the :func:`ropewalk.spectra.golden` spectrum; arguments as there.

    ``heads`` are those of k; each serves its group of q's heads.
    """

    def __init__(
        self,
        head_dim: int,
        heads: int,
        min_freq: float,
        max_freq: float,
        *,
        axes: int = 2,
        zero_fraction: float = 0.0,
        layout: Layout = "half",
        unit: float = 1.0,
    ) -> None:
        super().__init__(
            spectra.golden(
                head_dim,
                min_freq,
                max_freq,
                heads=heads,
                axes=axes,
                zero_fraction=zero_fraction,
                layout=layout,
                unit=unit,
            )
        )

    def coordinates_of(self, *sizes: int) -> Tensor:
        """Integer positions of a grid centred on 0, its sides in proportion to ``sizes``.

        Side a spans ± size_a / (product of sizes)^(1/axes), end points included; one place is at 0.
        The last size is the first axis, x, as images are stored [height, width].

        Returns:
            int64 ``[product of sizes, axes]``, the last size running fastest.

        Raises:
            ValueError: not one size per axis, or a size below 1.
        """
        if len(sizes) != self.axes:
            raise ValueError(f"{len(sizes)} sizes given; axes={self.axes} needs one per axis")
        mean = math.prod(check_dim(size, "size", at_most=1 << 20) for size in sizes)
        mean = mean ** (1 / self.axes)
        index = builders.grid(*sizes).to(torch.float64)
        last = torch.tensor(sizes, dtype=torch.float64) - 1
        share = 2 * index / last.clamp_min(1) - (last > 0).to(torch.float64)
        sides = torch.tensor(sizes, dtype=torch.float64) / mean
        return builders.fixed((share * sides).flip(-1), self.spectrum.unit)


def _stands(config) -> bool:
    return (
        round(config.get("zero_fraction", 0.0) * (config["head_dim"] // 2)) * 2
        == (config["head_dim"])
    )


register(
    Spec(
        name="golden",
        family="rotary",
        factory=GoldenRoPE,
        title="rotary along directions spread by the golden angle",
        equation=r"\mathrm{angle}_{h,c} = \omega_c \langle u_{h,c}, p\rangle,\quad "
        r"u = (\cos i\alpha, \sin i\alpha),\; \alpha = \pi\tfrac{\sqrt5-1}{2}",
        source="Xiong (2025), On N-dimensional Rotary Positional Embeddings",
        config={"head_dim": 64, "heads": 2, "min_freq": 0.01, "max_freq": 1.0},
        claims={**ROTATION_CLAIMS, "axes": True},
        reasons={"decay": ROTATION_REASONS["decay"]},
        variants={
            "nothing turns": Variant(
                {"zero_fraction": 1.0},
                {"unique": False, "axes": False},
                "every pair stands: no position at all",
                when=_stands,
            ),
        },
    )
)
