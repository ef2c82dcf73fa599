"""NTK-aware scaling: a larger base instead of slower positions."""

from __future__ import annotations

from ropewalk.spectra.arguments import check_number
from ropewalk.spectra.columns import per_pair
from ropewalk.spectra.spectrum import Spectrum


def ntk(spectrum: Spectrum, factor: float) -> Spectrum:
    r"""The frequencies of base · s^(d/(d−2)), with d = rotary_dim.

    .. math:: θ'_c = θ_c \cdot s^{-2c/(d-2)}

    The fastest pair is kept, the slowest is divided by s.

    Raises:
        TypeError: spectrum or factor is of another type.
        ValueError: factor < 1 or not finite; rotary_dim < 4, which has no slower pair to divide.

    Source: "NTK-aware scaled RoPE" (bloc97, 2023); YaRN (Peng et al., 2023), equation 16.
    """
    scale = check_number("factor", factor, at_least=1)
    return with_base_times(spectrum, scale)


def with_base_times(spectrum: Spectrum, scale: float) -> Spectrum:
    """θ_c · scale^(−2c/(d−2)) for any scale > 0."""
    dim = spectrum.rotary_dim if isinstance(spectrum, Spectrum) else 4
    if dim < 4:
        raise ValueError(f"rotary_dim={dim} has a single pair; NTK scaling needs at least 4 lanes")
    try:
        return per_pair(spectrum, lambda c, f: f * scale ** (-2 * c / (dim - 2)))
    except OverflowError:
        raise ValueError(
            f"alpha={scale!r} is so small that a frequency passes every float"
        ) from None
