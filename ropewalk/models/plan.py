"""What can be fused in one class: its methods rewritten, and what was found on the way.

Every method of the class is followed into the functions of its module that it calls. A rotary
function of a known form becomes one fused rotation; one that writes the rotation as a sum is
compiled anew with the sum fused; a function that calls such ones gets a copy that calls the fused
ones. Whatever else looks rotary is kept as it is and noted with the reason.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType
from typing import Any

from torch import nn

from ropewalk.models.idiom import fused_in
from ropewalk.models.methods import written_out
from ropewalk.models.recognise import recognised
from ropewalk.models.rewrite import SETTLED, global_names, other_uses, rewritten
from ropewalk.models.roles import called_rotary, looks_rotary
from ropewalk.models.rotation import Rotation
from ropewalk.models.usual import straight

_ROTATES = re.compile(r"apply_rot|rotate_(quer|key)", re.IGNORECASE)
_FOUNDATIONS = ("torch.", "transformers.modeling_utils", "transformers.modeling_layers")


@dataclass(frozen=True)
class Finding:
    """One rotary function: how it is fused, or why it is left."""

    function: str
    form: str | None
    reason: str | None = None


@dataclass(frozen=True)
class Method:
    """A method that is replaced.

    original    as the class has it
    new         what runs at a place
    settled     what runs where the place trusts all of ``functions``; None: ``new`` always runs
    """

    original: Any
    new: Callable[..., Any]
    settled: Callable[..., Any] | None = None
    functions: frozenset[str] = frozenset()


@dataclass
class Plan:
    """The methods of a class that are replaced, and every rotary function found in it."""

    methods: dict[str, Method] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


@cache
def fused_function(function: FunctionType) -> Rotation | str:
    """:func:`recognised`, once a function."""
    return recognised(function)


@cache
def plan(cls: type) -> Plan:
    """What can be fused in the methods of ``cls``."""
    made = Plan()
    follow = _Follow(made.findings)
    methods = _methods(cls)
    for name, method in methods.items():
        if isinstance(method, staticmethod):
            continue
        follow.home = inspect.unwrap(method).__globals__
        summed = fused_in(method)
        if summed is not None:
            made.findings.append(Finding(name, "each sum x·cos + rotated(x)·sin"))
        new = rewritten(summed or method, follow) or summed
        if new is not None:
            made.methods[name] = Method(method, new) if summed else _settling(method, new, follow)
        follow.note_others(method)
    made.findings.extend(_behind_super(cls, methods))
    for name, method in methods.items():
        if name not in made.methods and _ROTATES.search(name):
            _written_out(made, name, method)
    if (
        made.methods
        and "forward" not in made.methods
        and isinstance(methods.get("forward"), FunctionType)
    ):
        made.methods["forward"] = Method(methods["forward"], methods["forward"])
    return made


def _behind_super(
    cls: type, methods: dict[str, FunctionType | staticmethod[..., Any]]
) -> Iterator[Finding]:
    """The rotary functions of methods that ``super()`` takes from a class and not from a module."""
    for name, method in methods.items():
        if isinstance(method, staticmethod) or "super" not in global_names(
            inspect.unwrap(method).__code__
        ):
            continue
        after = iter(cls.__mro__)
        next(base for base in after if vars(base).get(name) is method)
        shadowed = next((plan(b) for b in after if name in _methods(b)), Plan())
        if name in shadowed.methods:
            why = f"{method.__qualname__} calls it through super()"
            for finding in shadowed.findings:
                yield Finding(finding.function, None, finding.reason or why)


def _settling(method: FunctionType, new: Callable[..., Any], follow: _Follow) -> Method:
    """A rewritten method with its settled form, if all its rotations are usual calls."""
    usual = _Usual(follow)
    settled = rewritten(method, usual, SETTLED)
    if settled is None or not usual.all:
        return Method(method, new)
    return Method(method, new, settled, frozenset(usual.functions))


def _written_out(made: Plan, name: str, method: FunctionType | staticmethod[..., Any]) -> None:
    """Replace a method that itself rotates, or note it."""
    function = method.__func__ if isinstance(method, staticmethod) else method
    writing = written_out(function) if isinstance(function, FunctionType) else None
    if writing is not None:
        made.methods[name] = Method(method, writing.fused)
        made.findings.append(Finding(name, str(writing.form)))
    elif not made.findings:
        made.findings.append(Finding(name, None, "it rotates in a way of its own"))


def _methods(cls: type) -> dict[str, FunctionType | staticmethod[..., Any]]:
    """The methods that an instance has, but for those of the base libraries."""
    found: dict[str, FunctionType | staticmethod[..., Any]] = {}
    seen: set[str] = set()
    for base in cls.__mro__:
        if base in (object, nn.Module) or base.__module__.startswith(_FOUNDATIONS):
            continue
        for name, value in vars(base).items():
            kind = (FunctionType, staticmethod)
            if name not in seen and isinstance(value, kind) and name != "__init__":
                found[name] = value
            seen.add(name)
    return found


class _Follow:
    """Gives what stands in for a function; remembers each so that it is looked at once."""

    def __init__(self, findings: list[Finding]):
        self.findings = findings
        self.home: dict[str, Any] = {}
        self.copies: set[FunctionType] = set()
        self.known: dict[FunctionType, Callable[..., Any] | None] = {}

    def __call__(self, function: FunctionType) -> Callable[..., Any] | None:
        if function not in self.known:
            self.known[function] = None
            self.known[function] = self._stand_in(function)
        return self.known[function]

    def note_others(self, method: FunctionType) -> None:
        """Note what cannot be replaced: no Python functions, and names with another use."""
        code = inspect.unwrap(method).__code__
        twice = other_uses(code)
        for name in sorted(global_names(code)):
            called = self.home.get(name)
            reason = None
            if not isinstance(called, FunctionType):
                if callable(called) and not isinstance(called, type) and called_rotary(name):
                    reason = f"it is a {type(called).__name__} and no Python function"
            elif name in twice and self(called) is not None:
                reason = f"{method.__qualname__} has an attribute of the same name"
            if reason is not None:
                self.findings.append(Finding(name, None, reason))

    def _stand_in(self, function: FunctionType) -> Callable[..., Any] | None:
        rotary = looks_rotary(function)
        known = fused_function(function) if rotary else ""
        if isinstance(known, Rotation):
            self.findings.append(Finding(function.__name__, str(known.form)))
            return known
        if not rotary and inspect.unwrap(function).__globals__ is not self.home:
            return None
        summed = fused_in(function)
        if summed is not None:
            self.findings.append(Finding(function.__name__, "each sum x·cos + rotated(x)·sin"))
            return summed
        copied = rewritten(function, self)
        if copied is not None:
            self.copies.add(function)
        elif rotary:
            self.findings.append(Finding(function.__name__, None, known))
        return copied


class _Usual:
    """Gives the usual call that stands in for a rotary function, where there is one."""

    def __init__(self, follow: _Follow):
        self.follow = follow
        self.functions: set[str] = set()
        self.all = True

    def __call__(self, function: FunctionType) -> Callable[..., Any] | None:
        if function in self.follow.copies:
            return rewritten(function, self, SETTLED)
        new = self.follow.known.get(function)
        if new is None:
            return None
        turned = straight(new) if isinstance(new, Rotation) else None
        if turned is None:
            self.all = False
        else:
            self.functions.add(function.__name__)
        return turned
