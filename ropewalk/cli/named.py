"""An encoding as the command line names it: of the catalogue, or of one's own file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.catalog import Spec
    from ropewalk.core import Encoding

WHAT = "An encoding (`ropewalk encodings` lists them), or your own: path.py:Class, module:Class."


def named(name: str) -> Spec:
    """The spec of a catalogue name, ``path.py:Class`` or ``module:attribute``.

    Raises:
        TypeError, ValueError: there is none.
    """
    from ropewalk import catalog, plugins

    return plugins.from_file(name) if plugins.in_own_file(name) else catalog.get(name)


def made(spec: Spec, config: Mapping[str, Any]) -> Encoding:
    """The encoding, with seed 0 for parameters that are drawn."""
    from ropewalk.checks.content import seeded

    with seeded(0):
        return spec.make(**config)
