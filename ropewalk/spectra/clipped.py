"""Clipped frequencies: the slowest pairs are slowed down smoothly, to a standstill."""

from __future__ import annotations

import math

from ropewalk.spectra.arguments import check_flag, check_int
from ropewalk.spectra.columns import per_pair
from ropewalk.spectra.spectrum import Spectrum, require_spectrum


def clipped(spectrum: Spectrum, pairs: int = 20, *, hard: bool = False) -> Spectrum:
    r"""The last n pairs times half a cosine from 1 to 0, or times 0.

    .. math:: θ'_c = θ_c \cdot \tfrac{1}{2}\Bigl(1 + \cos\frac{π\,j}{n-1}\Bigr),
              \qquad j = c - (d/2 - n) \ge 0

    The first clipped pair keeps its frequency and the last one stands; with n = 1 it keeps it, as
    in the authors' code.

    Args:
        spectrum: of any kind; its last pairs are its slowest if it is geometric.
        pairs: n; all of them if there are fewer.
        hard: multiply all n by 0 instead.

    Raises:
        TypeError, ValueError: pairs is not an int ≥ 0, or hard not a bool.

    Source: CoPE: Clipped RoPE as A Scalable Free Lunch for Long Context LLMs (Li et al., 2026) and
    the authors' code, which multiplies inv_freq itself (their "HardClip" is ``hard=True``).
    """
    check_int("pairs", pairs, at_least=0)
    check_flag("hard", hard)
    require_spectrum(spectrum)
    count = min(pairs, spectrum.pairs)
    start = spectrum.pairs - count

    def clip(pair: int, frequency: float) -> float:
        j = pair - start
        if j < 0:
            return frequency
        if hard or (j == count - 1 and count > 1):
            return 0.0
        return frequency * 0.5 * (1 + math.cos(math.pi * j / max(count - 1, 1)))

    return per_pair(spectrum, clip)
