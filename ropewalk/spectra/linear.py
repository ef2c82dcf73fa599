"""Linear interpolation of positions."""

from __future__ import annotations

from ropewalk.spectra.arguments import check_number
from ropewalk.spectra.spectrum import Spectrum, require_spectrum


def linear(spectrum: Spectrum, factor: float) -> Spectrum:
    """Every frequency divided by ``factor``: θ/s.

    Raises:
        TypeError: factor is not a number.
        ValueError: factor < 1 or not finite.

    Source: Extending Context Window via Positional Interpolation (Chen et al., 2023).
    """
    require_spectrum(spectrum)
    divisor = check_number("factor", factor, at_least=1)
    return spectrum.map(lambda f: f / divisor)
