"""Spectra: frequencies of rotary encodings as values, and pure functions on them.

Standard library only; nothing here imports torch until a tensor is asked for.
"""

from ropewalk.spectra.axial import axial
from ropewalk.spectra.by_length import LengthSpectrum
from ropewalk.spectra.clipped import clipped
from ropewalk.spectra.dynamic_ntk import dynamic_ntk
from ropewalk.spectra.full_turns import full_turns
from ropewalk.spectra.geometric import geometric
from ropewalk.spectra.golden import golden
from ropewalk.spectra.hunyuan_alpha import hunyuan_alpha
from ropewalk.spectra.lanes import LAYOUTS, PAIRINGS, Layout, Pairing
from ropewalk.spectra.linear import linear
from ropewalk.spectra.llama3 import llama3
from ropewalk.spectra.longrope import longrope
from ropewalk.spectra.ntk import ntk
from ropewalk.spectra.ntk_by_parts import correction_range, ntk_by_parts
from ropewalk.spectra.proportional import fastest, proportional
from ropewalk.spectra.resonance import resonance, wavelength
from ropewalk.spectra.sections import along, sectioned
from ropewalk.spectra.spectrum import Spectrum
from ropewalk.spectra.turns import exact_angle, step
from ropewalk.spectra.yarn import yarn

__all__ = [
    "LAYOUTS",
    "PAIRINGS",
    "Layout",
    "LengthSpectrum",
    "Pairing",
    "Spectrum",
    "along",
    "axial",
    "clipped",
    "correction_range",
    "dynamic_ntk",
    "exact_angle",
    "fastest",
    "full_turns",
    "geometric",
    "golden",
    "hunyuan_alpha",
    "linear",
    "llama3",
    "longrope",
    "ntk",
    "ntk_by_parts",
    "proportional",
    "resonance",
    "sectioned",
    "step",
    "wavelength",
    "yarn",
]
