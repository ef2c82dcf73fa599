r"""Axial RoPE: every pair turns along one of n axes.

.. math:: \text{angle}_c = p_{a(c)} \cdot θ_c

so the score depends on the vector i − j. The axis a(c) of each pair is explicit. Coordinates may be
raw indices (Qwen, Pixtral), scaled to the pretraining grid (EVA), or normalised to [−1, 1]
(DINOv3); the last two are fixed-point integers whose scale enters the frequencies.

As known models have it, with d = head_dim:

- RoPE-ViT: ``(d, 100.0, layout="interleaved")``, x first: columns before rows.
- Qwen2-VL's and its successors' vision towers: ``(d, 10000.0)``.
- Pixtral, whose axes share one ladder, even steps for height and odd ones for width:
  ``(d, 10000.0, scale=(1.0, 10000.0 ** (-2 / d)))``.
- DINOv3: ``(d, 100.0, coordinates="normalised", scale=2 * math.pi)``.
- EVA-02: ``(d, 10000.0, coordinates="grid", layout="interleaved")``.
- Flux: ``(128, 10000.0, axes_dim=(16, 56, 56), layout="interleaved")``.

Source: Rotary Position Embedding for Vision Transformer (Heo et al., 2024), "axial".
Confirmed: against transformers (Qwen2-VL, Pixtral, DINOv3) and diffusers (Flux), angle by angle
(tests/test_catalogue_axes.py); by hand, against timm 1.0.31 (EVA, DINOv3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ropewalk import positions as builders
from ropewalk import spectra
from ropewalk.catalog import Spec, register
from ropewalk.encodings.rotary.rope import ROTATION_CLAIMS, ROTATION_REASONS, RoPE
from ropewalk.spectra import Layout

Coordinates = Literal["raw", "grid", "normalised"]
COORDINATES: tuple[Coordinates, ...] = ("raw", "grid", "normalised")
UNIT = 2.0**-20
"""One integer position of fractional coordinates."""


class AxialRoPE(RoPE):
    """RoPE along several axes.

    Args:
        head_dim: width of a head, a multiple of 2·axes unless the lanes are shared out otherwise.
        base: 100 is common for images.
        axes: number of position axes; 2 if None, or as many as axes_dim has.
        assignment: the axis of each pair; equal contiguous blocks if None.
        axes_dim: instead, the lanes of each axis, in contiguous blocks.
        coordinates: ``"raw"`` integer indices; ``"grid"``, indices times pretraining size ÷ size;
            ``"normalised"``, (2i + 1)/size − 1 in [−1, 1]. The last two take positions from
            :meth:`coordinates_of`, in units of 2⁻²⁰.
        scale: multiplies the frequencies, one number or one per axis; DINOv3 uses 2π with
            normalised coordinates.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    def __init__(
        self,
        head_dim: int,
        base: float = 100.0,
        *,
        axes: int | None = None,
        assignment: Sequence[int] | None = None,
        axes_dim: Sequence[int] | None = None,
        coordinates: Coordinates = "raw",
        scale: Sequence[float] | float = 1.0,
        layout: Layout = "half",
    ) -> None:
        if coordinates not in COORDINATES:
            raise ValueError(f"coordinates={coordinates!r} is unknown; use one of {COORDINATES}")
        super().__init__(
            spectra.axial(
                head_dim,
                base,
                axes=axes,
                assignment=assignment,
                axes_dim=axes_dim,
                scale=scale,
                layout=layout,
                unit=1.0 if coordinates == "raw" else UNIT,
            )
        )
        self.coordinates = coordinates

    def coordinates_of(self, *sizes: int, pretrained: Sequence[int] | None = None) -> Tensor:
        """Integer positions of a grid in this encoding's coordinates.

        Args:
            sizes: one per axis.
            pretrained: sizes the model was trained at, for ``coordinates="grid"``.

        Returns:
            int64 ``[product of sizes, axes]``, or ``[size]`` with one axis.

        Raises:
            ValueError: not one size per axis; ``pretrained`` missing, not wanted, or below 1.
        """
        if len(sizes) != self.axes:
            raise ValueError(f"{len(sizes)} sizes given; axes={self.axes} needs one per axis")
        if (pretrained is not None) != (self.coordinates == "grid"):
            raise ValueError(
                f"pretrained={pretrained!r} with coordinates={self.coordinates!r}: it is needed "
                "for 'grid' and only there"
            )
        index = builders.grid(*sizes)
        index = index.squeeze(-1) if self.axes == 1 else index
        if self.coordinates == "raw":
            return index
        size = torch.tensor(sizes, dtype=torch.float64)
        if pretrained is None:
            return builders.fixed((2 * index + 1) / size - 1, UNIT)
        if len(pretrained) != self.axes or min(pretrained) < 1:
            raise ValueError(
                f"pretrained={tuple(pretrained)} must hold a size of at least 1 for each of "
                f"axes={self.axes}"
            )
        return builders.fixed(index * (torch.tensor(pretrained, dtype=torch.float64) / size), UNIT)


register(
    Spec(
        name="axial",
        family="rotary",
        factory=AxialRoPE,
        title="rotary along n axes, one axis per pair",
        equation=r"\mathrm{angle}_c = p_{a(c)}\,\theta_c",
        source="Heo et al. (2024), Rotary Position Embedding for Vision Transformer",
        config={"head_dim": 64},
        claims={**ROTATION_CLAIMS, "axes": True},
        reasons={"decay": ROTATION_REASONS["decay"]},
    )
)
