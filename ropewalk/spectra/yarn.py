"""YaRN: NTK by parts, and a temperature on the attention logits."""

from __future__ import annotations

import math

from ropewalk.spectra.arguments import check_number
from ropewalk.spectra.ntk_by_parts import ntk_by_parts
from ropewalk.spectra.spectrum import Spectrum


def mscale(factor: float, weight: float = 1.0) -> float:
    """0.1 · weight · ln(factor) + 1, and 1 for factor ≤ 1.

    Source: YaRN (Peng et al., 2023), equation 22; the weight from DeepSeek-V2 (2024).
    """
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def yarn_attention_factor(
    factor: float, mscale_weight: float | None = None, mscale_all_dim: float | None = None
) -> float:
    """What cos and sin are multiplied with: m(s), or m(s, mscale)/m(s, mscale_all_dim)."""
    if mscale_weight and mscale_all_dim:
        return mscale(factor, mscale_weight) / mscale(factor, mscale_all_dim)
    return mscale(factor)


def yarn(
    spectrum: Spectrum,
    factor: float,
    original_max_position_embeddings: float,
    *,
    attention_factor: float | None = None,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    truncate: bool = True,
    base: float | None = None,
) -> Spectrum:
    r"""Frequencies by parts (:func:`ntk_by_parts`), cos and sin times an attention factor.

    .. math:: a = 0.1 \ln s + 1, \quad\text{or}\quad
              a = \frac{0.1\,m \ln s + 1}{0.1\,m_{all} \ln s + 1}

    with m = mscale and m_all = mscale_all_dim where both are given and not 0 (DeepSeek).

    Args:
        spectrum: a geometric one.
        factor: s ≥ 1.
        original_max_position_embeddings: L, the length of the first training.
        attention_factor: a itself, final.
        beta_fast: see :func:`ntk_by_parts`, as are beta_slow, truncate and base.
        mscale: weight in the numerator.
        mscale_all_dim: weight in the denominator.

    Raises:
        TypeError, ValueError: a value is out of range.

    Source: YaRN: Efficient Context Window Extension (Peng et al., 2023); DeepSeek-V2 (2024).
    """
    by_parts = ntk_by_parts(
        spectrum,
        factor,
        original_max_position_embeddings,
        beta_fast=beta_fast,
        beta_slow=beta_slow,
        truncate=truncate,
        base=base,
    )
    weights = [
        None if w is None else check_number(name, w)
        for name, w in (("mscale", mscale), ("mscale_all_dim", mscale_all_dim))
    ]
    own = (
        yarn_attention_factor(factor, *weights)
        if attention_factor is None
        else check_number("attention_factor", attention_factor, above=0)
    )
    return by_parts.replace(attention_factor=spectrum.attention_factor * own)
