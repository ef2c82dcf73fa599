"""Names of racers: an encoding with its options, or the layers of a plan, as one string.

====================================  ============================================================
``rope``                              an encoding of the catalogue in the sizes of the model
``none``                              order through the mask alone
``rope:base=500000:layout=half``      with arguments
``mine.py:Mine:width=3``              of one's own file, or ``module:Class``
``rope~2048``                         at positions drawn at random below 2048, in order
``rope@64``                           in layers that see a window of 64 tokens
``rope+rope+rope+none``               a period of layers, repeated through the model
====================================  ============================================================

The string is also the label under which a race lists it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropewalk import catalog, plugins
from ropewalk.catalog import Spec
from ropewalk.core import Additive, Encoding
from ropewalk.encodings import randomized
from ropewalk.plan import Layer, Plan

NONE = "none"

_OPTION = re.compile(r":(?=[A-Za-z_]\w*=)")
_WINDOW = re.compile(r"@(\d+)$")
_LIMIT = re.compile(r"~(\d+)$")


@dataclass(frozen=True)
class Part:
    """One layer of a period: an encoding by name, its options, its positions, how far it sees."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    limit: int | None = None
    window: int | None = None


def split(given: str) -> list[str]:
    """``"rope:base=5e5,mrope:sections=[2,3,3]"`` as its two names: commas in brackets stay."""
    return [part.strip() for part in _outside_brackets(given, ",") if part.strip()]


def parse(label: str) -> tuple[Part, ...]:
    """The period of layers that a label stands for; one part where all layers are alike.

    Raises:
        ValueError: it is empty, an option is given twice or without a value, or it names no
            encoding of the catalogue and no file.
    """
    parts = _outside_brackets(label, "+")
    if not all(part.strip() for part in parts):
        raise ValueError(
            f"encoding {label!r} has an empty layer; write rope, none, rope:base=500000 or "
            "rope+rope+none"
        )
    return tuple(_part(part.strip(), label) for part in parts)


def make(label: str, sizes: Mapping[str, Any]) -> Encoding | Plan | None:
    """What a label stands for in a model of these sizes.

    Args:
        label: as above.
        sizes: any of ``dim``, ``content_dim``, ``head_dim``, ``heads``, ``length``, ``axes``; an
            encoding gets those that it has an argument for, unless the label sets them. A table
            that can be resized is made for ``trained`` places, if given, instead of ``length``;
            random positions are drawn for ``side`` places of each axis, if given.

    Returns:
        An encoding, a :class:`~ropewalk.plan.Plan` of several or windowed layers, or None.

    Raises:
        TypeError, ValueError: as :func:`parse`, or an encoding cannot be made so.
    """
    parts = parse(label)
    made: dict[Part, Encoding | None] = {}
    for part in parts:
        alike = replace(part, window=None)
        if alike not in made:
            made[alike] = _made(alike, sizes)
    if len(parts) == 1 and parts[0].window is None:
        return made[parts[0]]
    found = [(made[replace(part, window=None)], part.window) for part in parts]
    if any(isinstance(encoding, Additive) for encoding, _ in found):
        raise ValueError(
            f"encoding {label!r}: an additive code is added once, to the embeddings, and is no "
            "part of a plan of layers; name it alone"
        )
    return Plan([Layer(encoding, window) for encoding, window in found])


def files(label: str) -> dict[str, str]:
    """The SHA-256, hex, of the files that make the encodings of one's own in a label, by name."""
    found = {}
    for part in parse(label):
        if part.name != NONE and plugins.in_own_file(part.name):
            source = inspect.getsourcefile(_spec(part.name).factory)
            if source is not None:
                found[part.name] = hashlib.sha256(Path(source).read_bytes()).hexdigest()
    return found


def _part(text: str, label: str) -> Part:
    ends: list[int | None] = []
    for end in (_WINDOW, _LIMIT):
        found = end.search(text)
        ends.append(None if found is None else int(found[1]))
        text = text if found is None else text[: found.start()]
    window, limit = ends
    name, *settings = _OPTION.split(text)
    options: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key in options:
            raise ValueError(f"encoding {label!r} gives {key!r} twice; state it once")
        options[key] = _value(value)
    if name == NONE and (options or limit is not None):
        raise ValueError(f"encoding {label!r}: none takes no options and has no positions")
    known, colon, rest = name.partition(":")
    if colon and (known == NONE or known in catalog.encodings()):
        raise ValueError(
            f"encoding {label!r}: {rest!r} is no option; write {known}:KEY=VALUE, such as "
            "rope:base=500000"
        )
    if name != NONE:
        _spec(name)
    return Part(name, tuple(options.items()), limit, window)


def _spec(name: str) -> Spec:
    return plugins.from_file(name) if plugins.in_own_file(name) else catalog.get(name)


def _made(part: Part, sizes: Mapping[str, Any]) -> Encoding | None:
    if part.name == NONE:
        return None
    spec = _spec(part.name)
    accepted = inspect.signature(spec.factory).parameters
    needed = {name for name, p in accepted.items() if p.default is p.empty}
    usual = {name: value for name, value in spec.config.items() if name in needed}
    fitting = {name: size for name, size in sizes.items() if name in accepted}
    if "length" in fitting and "trained" in sizes and hasattr(spec.factory, "resized"):
        fitting["length"] = sizes["trained"]
    if part.limit is None:
        return spec.make(**{**usual, **fitting, **dict(part.options)})
    if "length" in fitting:
        fitting["length"] = part.limit
    base = spec.make(**{**usual, **fitting, **dict(part.options)})
    tokens = sizes.get("length", 1)
    return randomized(base, tokens if base.axes == 1 else sizes.get("side", tokens), part.limit)


def _value(text: str) -> Any:
    """A Python literal as such (lists as tuples, so that a part can be compared), else text."""
    try:
        return _frozen(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _outside_brackets(text: str, mark: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == mark and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
