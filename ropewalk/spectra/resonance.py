"""Resonance: every wavelength rounded to a whole number of positions."""

from __future__ import annotations

import math

from ropewalk.spectra.arguments import check_number
from ropewalk.spectra.spectrum import Spectrum, require_spectrum


def wavelength(frequency: float) -> int:
    r"""round(2π / θ), the whole number of positions nearest to a turn.

    Raises:
        ValueError: θ is not above 0 and below 4π, where the nearest number is 0.
    """
    exact = 2 * math.pi / check_number("frequency", frequency, above=0)
    if math.isinf(exact):
        raise ValueError(
            f"frequency={frequency!r} is so small that its wavelength passes any float"
        )
    found = round(exact)
    if found < 1:
        raise ValueError(
            f"frequency={frequency!r} turns more than twice a position: its wavelength rounds to "
            "0; use frequencies below 4π"
        )
    return found


def resonance(spectrum: Spectrum) -> Spectrum:
    r"""Every pair comes back to where it was after a whole number of positions.

    .. math:: θ'_c = 2π / λ_c, \qquad λ_c = \mathrm{round}(2π / θ_c)

    A pair that stands keeps frequency 0. Apply it after another scaling, as the paper does with
    YaRN: ``resonance(yarn(spectrum, …))``.

    The period is exact up to what a float64 frequency and a 64-bit step can say of 2π/λ: after each
    period the phase is the same up to 8e-16 + 1.7e-19·λ radians, always in the same direction, so
    that it departs from 2π·(p mod λ)/λ by at most (1.3e-16·2π/λ + 1.7e-19)·p. The authors' code
    takes p mod λ instead, which loses nothing here and cannot be said by a frequency.

    Raises:
        TypeError: spectrum is not a Spectrum.
        ValueError: a frequency of 4π or more.

    Source: Resonance RoPE (Wang et al., 2024), §4, and the authors' code.
    """
    require_spectrum(spectrum)

    def whole(frequency: float) -> float:
        if frequency == 0:
            return 0.0
        return math.copysign(2 * math.pi / wavelength(abs(frequency)), frequency)

    return spectrum.map(whole)
