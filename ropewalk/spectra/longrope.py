"""LongRoPE: a searched divisor for every pair, one list for short and one for long sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ropewalk.spectra.arguments import FARTHEST, check_flag, check_int, check_number
from ropewalk.spectra.by_length import LengthSpectrum, by_length
from ropewalk.spectra.columns import per_pair
from ropewalk.spectra.spectrum import Spectrum, require_spectrum


def longrope_attention_factor(factor: float, original: int) -> float:
    """√(1 + ln s / ln L), and 1 for factor ≤ 1.

    Source: LongRoPE (Ding et al., 2024), as in Phi-3.
    """
    if factor <= 1 or original <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original))


@dataclass(frozen=True)
class LongRoPE:
    """Beyond the original length, pair c is slower by short_c / long_c."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int

    def at(self, spectrum: Spectrum, length: int) -> Spectrum:
        """``spectrum`` for ``length`` tokens."""
        if length <= self.original:
            return spectrum
        return per_pair(spectrum, lambda c, f: f * self.short[c] / self.long[c])


def longrope(
    spectrum: Spectrum,
    short_factor: Sequence[float],
    long_factor: Sequence[float],
    original_max_position_embeddings: int,
    *,
    factor: float | None = None,
    attention_factor: float | None = None,
    any_order: bool = False,
) -> LengthSpectrum:
    r"""θ_c / short_c up to the original length L, θ_c / long_c for longer sequences.

    ``for_length(n)`` takes the long list from n = L + 1 on. cos and sin are multiplied with
    attention_factor, or √(1 + ln s / ln L), at every length.

    Args:
        spectrum: the unscaled one.
        short_factor: a divisor for each pair.
        long_factor: the same for long sequences.
        original_max_position_embeddings: L.
        factor: s ≥ 1, the extended length ÷ L.
        attention_factor: final; from factor if None.
        any_order: take lists that fall. The search keeps divisors from falling with c, so a list
            that does is a mistake, unless a model was trained with it.

    Raises:
        TypeError, ValueError: a list has another length than there are pairs or falls, a divisor
            is not above 0, factor < 1, or neither factor nor attention_factor is given.

    Source: LongRoPE (Ding et al., 2024); Phi-3 (2024).
    """
    require_spectrum(spectrum)
    original = check_int(
        "original_max_position_embeddings",
        original_max_position_embeddings,
        at_least=1,
        at_most=FARTHEST,
    )
    short = _divisors("short_factor", short_factor, spectrum.pairs)
    long = _divisors("long_factor", long_factor, spectrum.pairs)
    if not check_flag("any_order", any_order):
        _require_order("short_factor", short)
        _require_order("long_factor", long)
    if attention_factor is None:
        if factor is None:
            raise ValueError(
                "longrope needs factor (the extended length ÷ the original one) or attention_factor"
            )
        scale = check_number("factor", factor, at_least=1)
        attention_factor = longrope_attention_factor(scale, original)
    check_number("attention_factor", attention_factor, above=0)
    scaled = per_pair(spectrum, lambda c, f: f / short[c])
    scaled = scaled.replace(attention_factor=spectrum.attention_factor * attention_factor)
    return by_length(scaled, LongRoPE(short, long, original))


def _divisors(name: str, values: Sequence[float], pairs: int) -> tuple[float, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a sequence with a divisor for each of the {pairs} pairs")
    if len(values) != pairs:
        raise ValueError(f"{name} has {len(values)} entries; the spectrum has {pairs} pairs")
    return tuple(check_number(f"{name}[{c}]", v, above=0) for c, v in enumerate(values))


def _require_order(name: str, divisors: tuple[float, ...]) -> None:
    for c, (here, after) in enumerate(pairwise(divisors)):
        if after < here:
            raise ValueError(
                f"{name} falls from {here:g} at pair {c} to {after:g}; LongRoPE's divisors never "
                "fall: sort them, or pass any_order=True if the model was trained so"
            )
