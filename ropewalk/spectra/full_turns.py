"""Full turns: only pairs that complete one within the training length turn at all."""

from __future__ import annotations

import math

from ropewalk.spectra.arguments import check_number
from ropewalk.spectra.spectrum import Spectrum, require_spectrum


def full_turns(spectrum: Spectrum, length: float) -> Spectrum:
    r"""Frequencies below 2π / length become 0, the others are kept.

    .. math:: θ'_c = θ_c \;\text{ if } θ_c \ge 2π / L, \qquad 0 \text{ else}

    Args:
        spectrum: of any kind.
        length: L, tokens of a training sequence.

    Raises:
        TypeError, ValueError: spectrum is not a Spectrum, or length not a number above 0.

    Source: HoPE (Chen et al., 2024); the same floor in Fourier Position Embedding (Hua et al.,
    2024).
    """
    require_spectrum(spectrum)
    slowest = 2 * math.pi / check_number("length", length, above=0)
    return spectrum.map(lambda f: f if abs(f) >= slowest else 0.0)
