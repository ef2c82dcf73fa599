"""Encodings from elsewhere: of other distributions by entry point, of a file or module by name.

A distribution offers encodings in the entry point group ``ropewalk.encodings``::

    [project.entry-points."ropewalk.encodings"]
    fades = "my_package.fades:Fades"

The right side is a :class:`~ropewalk.catalog.Spec`, a class of an encoding whose arguments all have
defaults, or a module whose import registers its own. A plugin that cannot be loaded is left out
whole, with one :class:`PluginWarning` that names its distribution; all others are there.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import sys
import warnings
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from ropewalk import catalog
from ropewalk.catalog import Spec

GROUP = "ropewalk.encodings"


class PluginWarning(UserWarning):
    """A plugin could not be loaded; the others are there."""


_broken: dict[str, str] = {}
_everywhere: dict[str, Spec] = {}
_loaded = False


def load() -> None:
    """Put the encodings of every plugin into the catalogue, once in a process.

    Warns:
        PluginWarning: for each plugin that cannot be loaded.
    """
    global _loaded
    if _loaded:
        return
    _loaded = True  # first: a plugin may ask for the catalogue while it is imported
    problems = []
    _everywhere.update(catalog.builtin())
    for entry in _entries():
        before = dict(catalog._registry)
        try:
            _add(entry)
            _everywhere.update({n: s for n, s in catalog._registry.items() if n not in before})
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            catalog._registry.clear()
            catalog._registry.update(before)
            _broken[entry.name] = _words(entry, error)
            problems.append(_broken[entry.name])
    for problem in problems:
        warnings.warn(problem, PluginWarning, stacklevel=3)


def is_everywhere(name: str) -> bool:
    """Whether every process has this very spec: ropewalk's own, or a plugin's."""
    spec = catalog.encodings().get(name)
    return spec is not None and _everywhere.get(name) is spec


def broken() -> Mapping[str, str]:
    """Entry point name → why the plugin could not be loaded."""
    return MappingProxyType(_broken)


def _entries() -> list[importlib.metadata.EntryPoint]:
    """Every entry point of the group, each once, in an order that does not change."""
    found = importlib.metadata.entry_points(group=GROUP)
    return sorted(set(found), key=lambda e: (_distribution(e), e.name, e.value))


def _add(entry: importlib.metadata.EntryPoint) -> None:
    found = entry.load()
    if isinstance(found, ModuleType):
        return
    spec = spec_of(found, entry.name, _distribution(entry))
    if catalog._registry.get(spec.name) is not spec:  # its module may have registered it
        catalog.register(spec)


def _distribution(entry: importlib.metadata.EntryPoint) -> str:
    dist = entry.dist
    return f"{dist.name} {dist.version}" if dist is not None else "an unknown distribution"


def _words(entry: importlib.metadata.EntryPoint, error: BaseException) -> str:
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (
        f"the plugin {entry.name!r} of {_distribution(entry)} ({entry.value}) cannot be loaded and "
        f"is left out: {' '.join(told.split())}; update or uninstall it"
    )


def spec_of(found: Any, name: str, source: str) -> Spec:
    """The spec of what a plugin or a file gives.

    Args:
        found: a Spec, or a class of an encoding; a class claims nothing, and is only measured.
        name: of the entry, for a class.
        source: who gives it, for a class.

    Raises:
        TypeError: it is neither.
    """
    from ropewalk.core import Encoding

    if isinstance(found, Spec):
        return found
    if not (inspect.isclass(found) and issubclass(found, Encoding)):
        raise TypeError(
            f"{name!r} is {_kind(found)}; it must be a ropewalk Spec or a subclass of Additive, "
            "Rotary, Bias or Contextual"
        )
    if inspect.isabstract(found) or not hasattr(found, "family"):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ()))) or "a family"
        raise TypeError(f"class {found.__name__} is abstract: it lacks {missing}")
    return Spec(
        name=name,
        family=found.family,  # pyright: ignore[reportArgumentType]
        factory=found,
        title=(inspect.getdoc(found) or found.__name__).splitlines()[0],
        equation="",
        source=source,
        config={},
        claims={},
    )


def _kind(value: object) -> str:
    article = "the class" if inspect.isclass(value) else "of type"
    return f"{article} {value.__name__ if inspect.isclass(value) else type(value).__name__}"


def in_own_file(name: str) -> bool:
    """Whether a name is of one's own: ``path.py``, ``path.py:Class`` or ``module:attribute``."""
    return isinstance(name, str) and (":" in name or name.endswith(".py"))


def from_file(name: str) -> Spec:
    """The spec of ``path.py:Class``, ``module:attribute``, or of the only encoding of ``path.py``.

    Raises:
        ValueError: there is no such file, module or attribute, or it cannot be imported.
        TypeError: it is no encoding.
    """
    place, colon, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    if colon and not attribute:
        raise ValueError(f"{name!r} names no class after the colon; write {place}:Class")
    if not place:
        raise ValueError(
            f"{name!r} cannot be imported: no file or module before the colon; write path.py:Class"
        )
    module = _imported(place)
    if not attribute:
        found = _only(module, place)
    else:
        found = module
        for part in attribute.split("."):
            if not hasattr(found, part):
                raise ValueError(
                    f"{place} has no {attribute!r}{catalog.suggestion(part, dir(found))}"
                )
            found = getattr(found, part)
    return spec_of(found, attribute or found.__name__, place)


def _only(module: ModuleType, place: str) -> Any:
    from ropewalk.core import Encoding

    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Encoding)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]
    if len(own) != 1:
        names = ", ".join(value.__name__ for value in own) or "none"
        raise ValueError(f"{place} defines these encodings: {names}; name one: {place}:Class")
    return own[0]


def _imported(place: str) -> ModuleType:
    """A file, or a module that can be imported from where one stands, as Python would run it."""
    try:
        return _file(place) if place.endswith(".py") else _module(place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a file of one's own raises, exits included
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ValueError(f"{place} cannot be imported: {' '.join(told.split())}") from error


def _module(place: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(place)


def _file(place: str) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    path = Path(place).resolve()
    name = f"ropewalk_file_{path.stem}"
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    made = spec_from_file_location(name, path)
    assert made is not None
    assert made.loader is not None
    module = sys.modules[name] = module_from_spec(made)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    made.loader.exec_module(module)
    return module
