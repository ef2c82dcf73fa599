"""NTK by parts: fast pairs are kept, slow ones interpolated, with a ramp between."""

from __future__ import annotations

import math

from ropewalk.spectra.arguments import WIDEST, check_base, check_flag, check_int, check_number
from ropewalk.spectra.columns import per_pair
from ropewalk.spectra.spectrum import Spectrum, require_spectrum


def correction_range(
    rotary_dim: int,
    base: float,
    original: float,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> tuple[float, float]:
    r"""The pair indices between which the ramp runs: turning β_fast and β_slow times in L.

    .. math:: c(β) = d \ln(L / 2πβ) / (2 \ln b)

    Rounded outwards if ``truncate``; low is kept ≥ 0 and high ≤ d − 1. For L below 2πβ_slow, or so
    long that every pair turns β_fast times, low comes out above high and the ramp runs backwards,
    as in the implementations that models were trained with.

    Raises:
        TypeError, ValueError: a value is out of range.
    """
    check_int("rotary_dim", rotary_dim, at_least=1, at_most=WIDEST)
    check_number("base", base, above=0)
    for name, value in (
        ("original", original),
        ("beta_fast", beta_fast),
        ("beta_slow", beta_slow),
    ):
        check_number(name, value, above=0)
    if base == 1:
        raise ValueError("base=1 makes all pairs turn alike; there is nothing to divide by parts")
    check_flag("truncate", truncate)

    def index(turns: float) -> float:
        share = original / (2 * math.pi * turns)
        if not 0 < share < math.inf:
            raise ValueError(
                f"beta={turns!r} is beyond what original_max_position_embeddings={original!r} can "
                "be compared with; usual are 32 and 1"
            )
        return rotary_dim * math.log(share) / (2 * math.log(base))

    low, high = index(beta_fast), index(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, rotary_dim - 1)


def ntk_by_parts(
    spectrum: Spectrum,
    factor: float,
    original_max_position_embeddings: float,
    *,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    base: float | None = None,
) -> Spectrum:
    r"""Pair c keeps θ_c below the ramp, becomes θ_c/s above it, and a blend within it.

    .. math:: θ'_c = θ_c\,(1 - r_c) + \frac{θ_c}{s} r_c, \quad
              r_c = \mathrm{clip}\Bigl(\frac{c - low}{high - low}, 0, 1\Bigr)

    Where low = high, the ramp is a step: pairs up to it are kept and those above are divided.

    Args:
        spectrum: a geometric one.
        factor: s ≥ 1.
        original_max_position_embeddings: L, the length of the first training.
        beta_fast: pairs that turn at least so often within L are kept.
        beta_slow: pairs that turn at most so often are divided by s.
        truncate: round the two ends of the ramp to whole pairs, outwards.
        base: rope_theta; read off the frequencies if None.

    Raises:
        TypeError, ValueError: a value is out of range, or base is neither given nor readable.

    Source: YaRN (Peng et al., 2023), §3.2; truncate=False as in gpt-oss (2025).
    """
    require_spectrum(spectrum)
    scale = check_number("factor", factor, at_least=1)
    length = check_number(
        "original_max_position_embeddings", original_max_position_embeddings, above=0
    )
    fast, slow = (
        check_number("beta_fast", beta_fast, above=0),
        check_number("beta_slow", beta_slow, above=0),
    )
    if fast < slow:
        raise ValueError(
            f"beta_fast={beta_fast} must be at least beta_slow={beta_slow}; usual are 32 and 1"
        )
    check_flag("truncate", truncate)
    base = base_of(spectrum) if base is None else check_base(base)
    low, high = correction_range(spectrum.rotary_dim, base, length, fast, slow, truncate)
    width = high - low if high != low else 1e-3

    def blend(pair: int, frequency: float) -> float:
        ramp = min(1.0, max(0.0, (pair - low) / width))
        return frequency * (1 - ramp) + frequency / scale * ramp

    return per_pair(spectrum, blend)


def base_of(spectrum: Spectrum) -> float:
    """rope_theta of a geometric spectrum, read off its slowest pair.

    Raises:
        ValueError: the frequencies are not geometric.
    """
    require_spectrum(spectrum)
    row = spectrum.inv_freq
    if len(row) < 2 or min(row) <= 0:
        raise ValueError(
            f"base must be given: it cannot be read off {len(row)} frequencies from {min(row)!r}"
        )
    last = len(row) - 1
    log = -math.log(row[last]) * spectrum.rotary_dim / (2 * last)
    for pair, found in enumerate(row):
        expected = -2 * pair / spectrum.rotary_dim * log
        if abs(math.log(found) - expected) > 1e-6:
            raise ValueError(
                f"base must be given: pair {pair} has frequency {found:.6g}, a geometric spectrum "
                f"with the same slowest pair would have {math.exp(expected):.6g}"
            )
    return math.exp(log)
