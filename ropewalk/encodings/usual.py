"""The usual spectra, from the few numbers that models state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ropewalk.spectra import Layout, Spectrum, axial, geometric

Scaling = Callable[[Spectrum], Spectrum] | Mapping[str, Any] | None
"""A function, or a ``rope_parameters`` dictionary."""


def theta(base: float | None, scaling: Scaling) -> tuple[float | None, Scaling]:
    """base, or the rope_theta that a rope_parameters dictionary may hold, and the rest of it."""
    if not isinstance(scaling, Mapping) or "rope_theta" not in scaling:
        return base, scaling
    stated = scaling["rope_theta"]
    if base is not None and base != stated:
        raise ValueError(f"base={base!r} and scaling's rope_theta={stated!r} differ; state one")
    return stated, {key: value for key, value in scaling.items() if key != "rope_theta"}


def refuse_both(**given: Any) -> None:
    """Refuse arguments that a Spectrum states already."""
    usual = {"base": None, "axes": 1, "layout": None, "rotary_dim": None}
    extra = [name for name, value in given.items() if value != usual[name]]
    if extra:
        raise ValueError(
            f"{', '.join(extra)} given beside a Spectrum, which states them already; use "
            "spectrum.replace(…), or RoPE(head_dim, base, …)"
        )


def usual(
    head_dim: int | None,
    base: float | None,
    axes: int,
    layout: Layout,
    rotary_dim: int | None,
    single: bool,
) -> Spectrum:
    """The spectrum of RoPE, or of axial RoPE; ``single`` rounds frequencies as float32 code does.

    Raises:
        TypeError, ValueError: a value is out of range.
    """
    if isinstance(head_dim, bool) or not isinstance(head_dim, int):
        raise TypeError(f"head_dim={head_dim!r} must be an int; or give a Spectrum in its place")
    if axes == 1:
        own = 10000.0 if base is None else base
        spectrum = geometric(head_dim, own, rotary_dim=rotary_dim, layout=layout)
        return _as_float32(spectrum, own) if single else spectrum
    if rotary_dim not in (None, head_dim):
        raise ValueError(
            f"rotary_dim={rotary_dim} with axes={axes}: state the lanes with a Spectrum"
        )
    return axial(head_dim, 100.0 if base is None else base, axes=axes, layout=layout)


def _as_float32(spectrum: Spectrum, base: float) -> Spectrum:
    """The frequencies as float32 code computes them: 1 / base^(arange(0, d, 2) / d)."""
    dim = spectrum.rotary_dim
    exponents = torch.arange(0, dim, 2, dtype=torch.int64, device="cpu").float() / dim
    return spectrum.replace(freqs=((1.0 / (base**exponents)).tolist(),))
