"""Linear interpolation of positions."""

from __future__ import annotations

from ropewalk.spectra.spectrum import Spectrum


def linear(spectrum: Spectrum, factor: float) -> Spectrum:
    """Every frequency divided by ``factor``: θ/s.

    Raises:
        ValueError: factor < 1 or not finite.

    Source: Extending Context Window via Positional Interpolation (Chen et al., 2023).
    """
    if not 1 <= factor < float("inf"):
        raise ValueError(f"factor={factor!r} must be finite and at least 1: positions are divided")
    return spectrum.map(lambda f: f / factor)
