"""Proportional RoPE: the lowest frequencies are removed rather than rotated."""

from __future__ import annotations

from ropewalk.spectra.arguments import check_base, check_even, check_number
from ropewalk.spectra.columns import per_pair
from ropewalk.spectra.geometric import geometric
from ropewalk.spectra.spectrum import Layout, Spectrum


def proportional(
    head_dim: int,
    base: float = 10000.0,
    *,
    fraction: float = 0.75,
    factor: float = 1.0,
    layout: Layout = "half",
) -> Spectrum:
    r"""The n = ⌊fraction·head_dim/2⌋ fastest pairs of RoPE; the others have frequency 0.

    .. math:: θ_c = \mathrm{base}^{-2c/\text{head\_dim}} / \text{factor} \;(c < n), \quad
              θ_c = 0 \;(n \le c < \text{head\_dim}/2)

    Exponents run over the whole head_dim and pairs stay (c, c + head_dim/2), unlike the partial
    rotary of GPT-NeoX.

    Args:
        head_dim: width of a head, even.
        base: rope_theta, > 0.
        fraction: share of pairs that turn, in [0, 1] (``partial_rotary_factor``).
        factor: divides the frequencies, ≥ 1.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range.

    Source: Round and Round We Go! (Barbero et al., 2024), §6; rope_type "proportional" of Gemma 4.
    """
    check_even("head_dim", head_dim)
    plain = geometric(head_dim, check_base(base), layout=layout)
    return fastest(plain, _share("fraction", fraction), factor)


def fastest(
    spectrum: Spectrum, partial_rotary_factor: float = 1.0, factor: float = 1.0
) -> Spectrum:
    r"""The same as a scaling: the n = ⌊r · pairs⌋ first pairs divided by ``factor``, the others 0.

    Args:
        spectrum: a geometric one over the whole head.
        partial_rotary_factor: r, the share of pairs that turn, in [0, 1].
        factor: divides the frequencies, ≥ 1.

    Raises:
        TypeError, ValueError: a value is out of range.
    """
    share = _share("partial_rotary_factor", partial_rotary_factor)
    divisor = check_number("factor", factor, at_least=1)
    turning = int(share * 2 * spectrum.pairs // 2) if isinstance(spectrum, Spectrum) else 0
    return per_pair(spectrum, lambda c, f: f / divisor if c < turning else 0.0)


def _share(name: str, value: float) -> float:
    if not 0 <= check_number(name, value) <= 1:
        raise ValueError(f"{name}={value!r} must lie in [0, 1]: the share of pairs that turn")
    return value
