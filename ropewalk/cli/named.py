"""An encoding as the command line names it: of the catalogue, or of one's own file."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from ropewalk.cli.output import complain

if TYPE_CHECKING:
    from ropewalk.catalog import Spec
    from ropewalk.core import Encoding

WHAT = "An encoding (`ropewalk encodings` lists them), or your own: path.py:Class, module:Class."

FAMILY = "Only additive, rotary, bias or contextual ones."


@contextmanager
def plugin_warnings_in_a_line() -> Iterator[None]:
    """Inside, a plugin that is left out is told as any complaint is; it changes no exit status."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def shown(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if category.__name__ == "PluginWarning":
                complain(str(message))
            else:
                usual(message, category, *where)

        warnings.showwarning = shown
        yield


def named(name: str) -> Spec:
    """The spec of a catalogue name, ``path.py:Class`` or ``module:attribute``.

    Raises:
        TypeError, ValueError: there is none.
    """
    from ropewalk import catalog, plugins

    if not plugins.in_own_file(name):
        return catalog.get(name)
    with redirect_stdout(sys.stderr):  # stdout is the answer's alone
        return plugins.from_file(name)


def of_family(family: str | None) -> Mapping[str, Spec]:
    """The catalogue by family, in the order of lists; one family alone if it is named.

    Raises:
        ValueError: there is no such family.
    """
    from ropewalk.catalog import FAMILIES, encodings, suggestion

    if family is not None and family not in FAMILIES:
        raise ValueError(
            f"--family {family!r} is unknown{suggestion(family, list(FAMILIES))}; use one of "
            f"{', '.join(FAMILIES)}"
        )
    order = list(FAMILIES)
    chosen = [s for s in encodings().values() if family in (None, s.family)]
    return {s.name: s for s in sorted(chosen, key=lambda s: (order.index(s.family), s.name))}


def made(spec: Spec, config: Mapping[str, Any]) -> Encoding:
    """The encoding, with seed 0 for parameters that are drawn.

    Raises:
        TypeError, ValueError: it cannot be made.
    """
    from ropewalk.checks.content import seeded

    try:
        with seeded(0), redirect_stdout(sys.stderr):
            return spec.make(**config)
    except (TypeError, ValueError):
        raise
    except Exception as error:
        raise ValueError(f"{spec.name} cannot be made: {type(error).__name__}: {error}") from error
