"""The wavelengths of a spectrum as a panel."""

from __future__ import annotations

import math

from ropewalk.report.figures.panels import Lines, evenly
from ropewalk.spectra import Spectrum


def wavelengths(spectrum: Spectrum, most: int) -> tuple[Lines, str] | None:
    """2π ÷ frequency of each pair, and what to say of it; None if no pair turns.

    Of every axis, or where there is one, of at most ``most`` heads with frequencies of their own.
    """
    matrices = spectrum.matrices
    curves = {}
    for head in evenly(len(matrices), most if spectrum.axes == 1 else 1):
        for axis, row in enumerate(matrices[head]):
            own = f"head {head}" if len(matrices) > 1 else "pairs"
            wave = [2 * math.pi / abs(f * spectrum.unit) if f else None for f in row]
            if any(wave):
                curves[f"axis {axis}" if spectrum.axes > 1 else own] = wave
    if not curves:
        return None
    still = sum(not any(column) for column in zip(*next(iter(matrices)), strict=True))
    panel = Lines(
        "wavelength by pair",
        "pair",
        list(range(spectrum.pairs)),
        curves,
        powers=True,
        dots=True,
    )
    caption = "Wavelength of each pair, 2π ÷ its frequency, in positions"
    caption += f"; {still} of {spectrum.pairs} pairs stand still." if still else "."
    return panel, caption
