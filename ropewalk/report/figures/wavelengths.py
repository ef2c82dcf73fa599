"""The wavelengths of a spectrum as a panel."""

from __future__ import annotations

import math

from ropewalk.report.figures.panels import Lines
from ropewalk.spectra import Spectrum


def wavelengths(spectrum: Spectrum, most: int) -> tuple[Lines, str] | None:
    """Positions for a whole turn of each pair, and what to say of it; None if no pair turns.

    At most ``most`` curves: of every axis if all heads share their frequencies, else of the first
    axes of the first heads.
    """
    matrices = spectrum.matrices
    curves = {}
    for head, matrix in enumerate(matrices):
        for axis, row in enumerate(matrix):
            words = [f"axis {axis}"] * (len(matrix) > 1) + [f"head {head}"] * (len(matrices) > 1)
            wave = [2 * math.pi / abs(f * spectrum.unit) if f else None for f in row]
            if any(wave) and len(curves) < most:
                curves[", ".join(words) or "pairs"] = wave
    if not curves:
        return None
    still = sum(not any(column) for column in zip(*matrices[0], strict=True))
    panel = Lines(
        "wavelength by pair",
        "pair",
        list(range(spectrum.pairs)),
        curves,
        powers=True,
        dots=True,
    )
    caption = "Positions for a whole turn of each pair"
    caption += f"; {still} of {spectrum.pairs} pairs stand still." if still else "."
    return panel, caption
