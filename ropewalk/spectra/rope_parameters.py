"""A ``rope_parameters`` dictionary as a function on spectra."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ropewalk.spectra.dynamic_ntk import dynamic_ntk
from ropewalk.spectra.hunyuan_alpha import hunyuan_alpha
from ropewalk.spectra.linear import linear
from ropewalk.spectra.llama3 import llama3
from ropewalk.spectra.longrope import longrope
from ropewalk.spectra.ntk import ntk
from ropewalk.spectra.ntk_by_parts import ntk_by_parts
from ropewalk.spectra.proportional import fastest
from ropewalk.spectra.resonance import resonance
from ropewalk.spectra.spectrum import Spectrum
from ropewalk.spectra.yarn import yarn

Function = Callable[[Spectrum], Spectrum]


def _default(spectrum: Spectrum) -> Spectrum:
    return spectrum


SCALINGS: dict[str, Callable[..., Spectrum]] = {
    "default": _default,
    "linear": linear,
    "ntk": ntk,
    "ntk_by_parts": ntk_by_parts,
    "dynamic": dynamic_ntk,
    "yarn": yarn,
    "longrope": longrope,
    "llama3": llama3,
    "proportional": fastest,
    "hunyuan_alpha": hunyuan_alpha,
    "resonance": resonance,
}
"""rope_type → a function of a spectrum and that type's own keys, under their usual names."""


def scaled(spectrum: Spectrum, scaling: Function | Mapping[str, Any] | None) -> Spectrum:
    """``spectrum`` after ``scaling``: None, a function, or a dictionary with ``rope_type``.

    Raises:
        TypeError: scaling is none of these, or a function that returns something else.
        ValueError: unknown rope_type; a key is missing, or not one of that type.
    """
    if scaling is None:
        return spectrum
    if isinstance(scaling, Mapping):
        return _from_parameters(spectrum, scaling)
    if not callable(scaling):
        raise TypeError(
            f"scaling must be a function Spectrum → Spectrum or a rope_parameters dictionary, got "
            f"{type(scaling).__name__}"
        )
    result = scaling(spectrum)
    if not isinstance(result, Spectrum):
        raise TypeError(f"scaling returned {type(result).__name__}; it must return a Spectrum")
    return result


def _from_parameters(spectrum: Spectrum, parameters: Mapping[str, Any]) -> Spectrum:
    kinds = sorted({str(parameters[key]) for key in ("rope_type", "type") if key in parameters})
    if len(kinds) != 1:
        raise ValueError(
            f"scaling needs exactly one rope_type, got {kinds}; one of {', '.join(SCALINGS)}"
        )
    kind = kinds[0]
    if kind not in SCALINGS:
        raise ValueError(
            f"scaling has rope_type={kind!r}, which is not known here; known: "
            f"{', '.join(SCALINGS)}. Any function Spectrum → Spectrum works too"
        )
    given = {k: v for k, v in parameters.items() if k not in ("rope_type", "type")}
    takes = list(inspect.signature(SCALINGS[kind]).parameters.values())[1:]
    names = [p.name for p in takes]
    missing = [p.name for p in takes if p.default is p.empty and p.name not in given]
    extra = [key for key in given if key not in names]
    if missing or extra:
        raise ValueError(
            f"rope_type={kind!r} takes {', '.join(names) or 'no other key'}; "
            f"missing: {', '.join(missing) or 'none'}; not used: {', '.join(extra) or 'none'}"
        )
    return SCALINGS[kind](spectrum, **given)
