"""The encodings: one idea a file, in the folder of the door it uses into attention.

An encoding joins the catalogue by its import line in its folder's ``__init__``.

``ropewalk.encodings()`` is the catalogue, and importing this package puts it under the same name;
so the package can be called, and gives the catalogue too.
"""

import sys
from collections.abc import Mapping
from types import ModuleType

from ropewalk import catalog
from ropewalk.encodings import additive, bias, rotary
from ropewalk.encodings.randomizing import randomized

__all__ = ["additive", "bias", "randomized", "rotary"]


class _Catalogue(ModuleType):
    """This package, callable as :func:`ropewalk.catalog.encodings`."""

    def __call__(self) -> Mapping[str, catalog.Spec]:
        """Every encoding by name, read-only."""
        return catalog.encodings()


sys.modules[__name__].__class__ = _Catalogue
