"""The scaling of Llama 3.1: by wavelength, with a blend between two bounds."""

from __future__ import annotations

import math

from ropewalk.spectra.arguments import check_number
from ropewalk.spectra.columns import per_pair
from ropewalk.spectra.spectrum import Spectrum


def llama3(
    spectrum: Spectrum,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> Spectrum:
    r"""A pair that turns t = L·θ/2π times within the original length L becomes

    .. math:: θ' = θ/s \;(t < low), \quad θ \;(t > high), \quad
              (1 - m)\,θ/s + m\,θ, \; m = \frac{t - low}{high - low} \text{ between}

    low = high is a hard cut: divided below it, kept at it and above (Llama 4 Scout).

    Args:
        spectrum: the unscaled one.
        factor: s ≥ 1.
        low_freq_factor: turns within L below which a pair is divided by s.
        high_freq_factor: turns above which it is kept.
        original_max_position_embeddings: L.

    Raises:
        TypeError, ValueError: a value is out of range, or low > high.

    Source: The Llama 3 Herd of Models (2024) and the code published with it.
    """
    scale = check_number("factor", factor, at_least=1)
    low = check_number("low_freq_factor", low_freq_factor, above=0)
    high = check_number("high_freq_factor", high_freq_factor, above=0)
    length = check_number(
        "original_max_position_embeddings", original_max_position_embeddings, above=0
    )
    if low > high:
        raise ValueError(
            f"low_freq_factor={low_freq_factor} must be at most high_freq_factor="
            f"{high_freq_factor}; usual are 1 and 4"
        )

    def scaled(_pair: int, frequency: float) -> float:
        turns = length * abs(frequency) / (2 * math.pi)
        if turns < low:
            return frequency / scale
        if turns > high or high == low:
            return frequency
        kept = (turns - low) / (high - low)
        return (1 - kept) * frequency / scale + kept * frequency

    return per_pair(spectrum, scaled)
