"""A function of the pair index applied to every frequency."""

from __future__ import annotations

from collections.abc import Callable

from ropewalk.spectra.spectrum import Spectrum, require_spectrum


def per_pair(spectrum: Spectrum, function: Callable[[int, float], float]) -> Spectrum:
    """``spectrum`` with ``function(pair, frequency)`` in place of every frequency.

    Raises:
        TypeError: spectrum is not a Spectrum.
    """
    require_spectrum(spectrum)
    matrices = tuple(
        tuple(tuple(function(c, f) for c, f in enumerate(row)) for row in matrix)
        for matrix in spectrum.matrices
    )
    return spectrum.replace(freqs=matrices[0] if spectrum.heads is None else matrices)
