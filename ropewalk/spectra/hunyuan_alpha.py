"""Hunyuan's alpha: a static NTK scaling."""

from __future__ import annotations

from ropewalk.spectra.arguments import check_number
from ropewalk.spectra.ntk import with_base_times
from ropewalk.spectra.spectrum import Spectrum


def hunyuan_alpha(spectrum: Spectrum, alpha: float) -> Spectrum:
    """The frequencies of base · alpha^(d/(d−2)) at every length, although its type says "dynamic".

    Raises:
        TypeError, ValueError: alpha is not a number above 0.

    Source: Hunyuan-Large (Tencent, 2024) and the code published with it; the "alpha" of ExLlama.
    """
    return with_base_times(spectrum, check_number("alpha", alpha, above=0))
