"""Dynamic NTK scaling: the base grows with the length of the sequence."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.spectra.arguments import FARTHEST, check_int, check_number
from ropewalk.spectra.by_length import LengthSpectrum, by_length
from ropewalk.spectra.ntk import with_base_times
from ropewalk.spectra.spectrum import Spectrum


@dataclass(frozen=True)
class DynamicNTK:
    """The base of a length n > L is that of L times (s·n/L − (s−1))^(d/(d−2))."""

    factor: float
    original: int

    def scale(self, length: int) -> float:
        """What the base is multiplied with, before the exponent: 1 up to the original length."""
        return max(1.0, self.factor * length / self.original - (self.factor - 1))

    def at(self, spectrum: Spectrum, length: int) -> Spectrum:
        """``spectrum`` for ``length`` tokens."""
        return with_base_times(spectrum, self.scale(length))


def dynamic_ntk(
    spectrum: Spectrum, factor: float, original_max_position_embeddings: int
) -> LengthSpectrum:
    r"""Unscaled up to the original length L, and beyond it the base grows with the length n.

    .. math:: \mathrm{base}(n) = \mathrm{base} \cdot \bigl(s\,n/L - (s - 1)\bigr)^{d/(d-2)}

    ``for_length(n)`` gives the spectrum of a length. A key that was rotated at another length does
    not match, so pin one length for a whole cache.

    Raises:
        TypeError, ValueError: factor < 1, or an original length < 1.

    Source: dynamic NTK scaling (emozilla, 2023), as rope_type "dynamic" of transformers.
    """
    rule = DynamicNTK(
        check_number("factor", factor, at_least=1),
        check_int(
            "original_max_position_embeddings",
            original_max_position_embeddings,
            at_least=1,
            at_most=FARTHEST,
        ),
    )
    return by_length(rule.at(spectrum, 1), rule)
