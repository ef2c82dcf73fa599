"""Spectra: frequencies of rotary encodings as values, and pure functions on them.

Standard library only; nothing here imports torch until a tensor is asked for.
"""

from ropewalk.spectra.axial import axial
from ropewalk.spectra.geometric import geometric
from ropewalk.spectra.lanes import LAYOUTS, PAIRINGS, Layout, Pairing
from ropewalk.spectra.linear import linear
from ropewalk.spectra.proportional import proportional
from ropewalk.spectra.spectrum import Spectrum
from ropewalk.spectra.turns import exact_angle, step

__all__ = [
    "LAYOUTS",
    "PAIRINGS",
    "Layout",
    "Pairing",
    "Spectrum",
    "axial",
    "exact_angle",
    "geometric",
    "linear",
    "proportional",
    "step",
]
