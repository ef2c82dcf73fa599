"""ropewalk: positional encodings for attention — exact, fast, checked.

Importing this package is cheap: torch is loaded when a name that needs it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ropewalk._version import __version__

if TYPE_CHECKING:
    from ropewalk import checks, configs, kernels, models, plan, positions, spectra
    from ropewalk.attention import attend
    from ropewalk.catalog import Spec, encodings, make, register
    from ropewalk.core import Additive, Bias, Block, Contextual, Encoding, Rotary
    from ropewalk.encodings.low_rank import LowRank
    from ropewalk.encodings.rotary import RoPE
    from ropewalk.kernels import (
        halve_tables,
        norm_rotate,
        norm_rotate_,
        norm_rotate_qk,
        norm_rotate_qk_,
        rotate,
        rotate_,
        rotate_by,
        rotate_by_,
        rotate_into_pages,
        rotate_qk,
        rotate_qk_,
        tables_for,
    )
    from ropewalk.spectra import Spectrum

_HOMES = {
    "ropewalk.attention": ("attend",),
    "ropewalk.catalog": ("Spec", "encodings", "make", "register"),
    "ropewalk.core": ("Additive", "Bias", "Block", "Contextual", "Encoding", "Rotary"),
    "ropewalk.encodings.low_rank": ("LowRank",),
    "ropewalk.encodings.rotary": ("RoPE",),
    "ropewalk.kernels": (
        "halve_tables",
        "norm_rotate",
        "norm_rotate_",
        "norm_rotate_qk",
        "norm_rotate_qk_",
        "rotate",
        "rotate_",
        "rotate_by",
        "rotate_by_",
        "rotate_into_pages",
        "rotate_qk",
        "rotate_qk_",
        "tables_for",
    ),
    "ropewalk.spectra": ("Spectrum",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("checks", "configs", "kernels", "models", "plan", "positions", "spectra")

__all__ = [
    "Additive",
    "Bias",
    "Block",
    "Contextual",
    "Encoding",
    "LowRank",
    "RoPE",
    "Rotary",
    "Spec",
    "Spectrum",
    "__version__",
    "attend",
    "checks",
    "configs",
    "encodings",
    "halve_tables",
    "kernels",
    "make",
    "models",
    "norm_rotate",
    "norm_rotate_",
    "norm_rotate_qk",
    "norm_rotate_qk_",
    "plan",
    "positions",
    "register",
    "rotate",
    "rotate_",
    "rotate_by",
    "rotate_by_",
    "rotate_into_pages",
    "rotate_qk",
    "rotate_qk_",
    "spectra",
    "tables_for",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"ropewalk.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
