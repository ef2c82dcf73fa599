"""Which arguments of a rotary function are what, read off its signature.

Names only propose; :mod:`ropewalk.models.recognise` then runs the function and believes what it
does.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_CALLED_SO = re.compile(r"rotary|rotate_[a-z]*(quer|key)|apply_rot", re.IGNORECASE)
_TABLE_AXIS = re.compile(r"unsqueeze")
_COS = re.compile(r"(?:^|_)cos(?:ine)?s?(?:_|$)|^cos", re.IGNORECASE)
_SIN = re.compile(r"(?:^|_)sin(?:e)?s?(?:_|$)", re.IGNORECASE)
_FREQS = re.compile(r"freqs?_?(ci|cis|complex)|^freqs$")


@dataclass(frozen=True)
class Roles:
    """The arguments of a rotary function by what they are for.

    tensors     those that are rotated: q and k, q, k and v, or one x
    tables      cos and sin, or one complex table
    axis        the argument that says where the tables get a head dimension, if there is one
    names       all arguments in order
    defaults    what those that may be left out are then
    """

    tensors: tuple[str, ...]
    tables: tuple[str, ...]
    axis: str | None
    names: tuple[str, ...]
    defaults: tuple[tuple[str, Any], ...]

    def bind(self, args: Sequence[Any], given: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name."""
        bound = dict(self.defaults)
        bound.update(zip(self.names, args, strict=False))
        bound.update(given)
        return bound


def looks_rotary(function: Callable[..., Any]) -> bool:
    """Whether a function is worth trying: by its name, or by tensors and tables it takes."""
    return called_rotary(function.__name__) or roles_of(function) is not None


def called_rotary(name: str) -> bool:
    """Whether a function of this name probably rotates."""
    return _CALLED_SO.search(name) is not None


def _parameters(function: Callable[..., Any]) -> list[tuple[str, inspect.Parameter]]:
    try:
        return list(inspect.signature(function).parameters.items())
    except (TypeError, ValueError):
        return []


def roles_of(function: Callable[..., Any]) -> Roles | None:
    """The roles that the signature of ``function`` proposes, or None if it proposes none."""
    parameters = _parameters(function)
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for _, p in parameters):
        return None
    cos = [n for n, _ in parameters if _COS.search(n)]
    sin = [n for n, _ in parameters if _SIN.search(n)]
    freqs = [n for n, _ in parameters if _FREQS.search(n.lower())]
    tables = (cos[0], sin[0]) if len(cos) == len(sin) == 1 else tuple(freqs)
    if len(tables) != (2 if cos else 1):
        return None
    tensors: list[str] = []
    axis = None
    for name, parameter in parameters:
        if name in tables:
            continue
        if _TABLE_AXIS.search(name) and isinstance(parameter.default, int):
            axis = name
        elif name == "position_ids" and parameter.default is None:
            continue
        elif parameter.default is parameter.empty or (parameter.default is None and tensors):
            tensors.append(name)
        else:
            return None
    if not 1 <= len(tensors) <= 3:
        return None
    defaults = tuple((n, p.default) for n, p in parameters if p.default is not p.empty)
    return Roles(tuple(tensors), tables, axis, tuple(n for n, _ in parameters), defaults)
