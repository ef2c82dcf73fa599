"""Proportional RoPE: the lowest frequencies are removed rather than rotated."""

from __future__ import annotations

from ropewalk.spectra.arguments import check_base, check_even, check_number
from ropewalk.spectra.geometric import powers
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
    if not 0 <= check_number("fraction", fraction) <= 1:
        raise ValueError(f"fraction={fraction!r} must lie in [0, 1]: the share of pairs that turn")
    divisor = check_number("factor", factor, at_least=1)
    turning = int(fraction * head_dim // 2)
    row = tuple(f / divisor for f in powers(check_base(base), turning, head_dim))
    return Spectrum((row + (0.0,) * (head_dim // 2 - turning),), head_dim, layout=layout)
