"""Spectra whose frequencies follow from the length of the sequence."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

from ropewalk.spectra.arguments import FARTHEST, check_int
from ropewalk.spectra.spectrum import Spectrum


class LengthRule(Protocol):
    """How the frequencies change with the length: a hashable value."""

    def at(self, spectrum: Spectrum, length: int) -> Spectrum:
        """``spectrum`` as it is for a sequence of ``length`` tokens."""
        ...


@dataclass(frozen=True, eq=True)
class LengthSpectrum(Spectrum):
    """A spectrum that changes with the length; its own frequencies are those of short sequences.

    Nothing looks at a length in a forward pass: pin one with ``for_length(n)`` first, so that keys
    rotated earlier and later agree.

    Args:
        rule: gives the frequencies of a length from those of short sequences.
    """

    rule: LengthRule | None = None

    def for_length(self, length: int) -> Spectrum:
        """The fixed spectrum for sequences of ``length`` tokens.

        Raises:
            TypeError, ValueError: length is not an int ≥ 1.
        """
        check_int("length", length, at_least=1, at_most=FARTHEST)
        fixed = Spectrum(**{f.name: getattr(self, f.name) for f in fields(Spectrum) if f.init})
        return fixed if self.rule is None else self.rule.at(fixed, length)


def by_length(spectrum: Spectrum, rule: LengthRule) -> LengthSpectrum:
    """``spectrum`` for short sequences, and ``rule`` for what becomes of it with the length."""
    given = {f.name: getattr(spectrum, f.name) for f in fields(Spectrum) if f.init}
    return LengthSpectrum(**given, rule=rule)
