"""The class of a patched module: a subclass of its own that runs the rewritten methods.

One subclass a class, made when it is first needed and known by its original: so instances pickle,
copy and compile like any other, and all layers share their code. What differs between instances
is their :class:`Place`.
"""

from __future__ import annotations

from functools import cache, wraps
from types import MethodType
from typing import Any

from torch import nn
from torch.compiler import is_compiling

from ropewalk.models.places import Place, enter, leave
from ropewalk.models.plan import Method, plan

STATE = "_ropewalk_place"
ORIGINAL = "_ropewalk_original"
UNDONE = "it was unpatched since"
"""Why what was patched runs the model's own code again; reports of the patch then say so."""


def _method(planned: Method, functions: frozenset[str]) -> Any:
    """The new method at the module's place; the original where a graph is traced and it was left.

    Else a place that was left runs the new method too, whose rotations are then the model's own: as
    in the call that found it out, since a checkpoint pairs what both have saved.

    ``functions`` are all that rotate in any method of the class.
    """
    original, new = planned.original, planned.new
    if isinstance(original, staticmethod):
        return staticmethod(new)

    settled = planned.settled

    @wraps(original)
    def method(self: nn.Module, *args: Any, **given: Any) -> Any:
        place: Place = self.__dict__[STATE]
        if settled is not None and not is_compiling() and place.settled:
            return settled(self, *args, **given)
        if is_compiling():
            return (new if place.left is None else original)(self, *args, **given)
        token = enter(place)
        try:
            return new(self, *args, **given)
        finally:
            leave(token)
            if token.old_value is not place:
                place.settle(functions)

    return method


@cache
def fused_class(cls: type) -> type | None:
    """The subclass that runs fused rotations in place of those of ``cls``; None if it has none."""
    methods = plan(cls).methods
    if not methods:
        return None
    functions = frozenset(name for planned in methods.values() for name in planned.functions)
    body: dict[str, Any] = {name: _method(planned, functions) for name, planned in methods.items()}
    body |= {
        ORIGINAL: cls,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__reduce_ex__": _reduce,
    }
    return type(cls)(cls.__name__, (cls,), body)


def _reduce(self: nn.Module, protocol: int) -> Any:
    state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
    return _empty, (getattr(type(self), ORIGINAL),), state


def _empty(cls: Any) -> Any:
    """An instance without state, as unpickling and copying start with."""
    made: Any = fused_class(cls) or cls
    return made.__new__(made)


def original_class(module: nn.Module) -> type | None:
    """The class that a fused module had; None for any other module."""
    return vars(type(module)).get(ORIGINAL)


def place_of(module: nn.Module) -> Place | None:
    """The place of a fused module."""
    return module.__dict__.get(STATE)


def fuse(module: nn.Module) -> Place:
    """Make ``module`` an instance of its fused class."""
    cls = type(module)
    fused = fused_class(cls)
    assert fused is not None
    module.__class__ = fused
    place = module.__dict__[STATE] = Place()
    methods = plan(cls).methods
    rebind(module, {planned.original: getattr(fused, name) for name, planned in methods.items()})
    return place


def restore(module: nn.Module) -> None:
    """Give a fused module the class, the methods and the state that it had."""
    cls = original_class(module)
    assert cls is not None
    fused = type(module)
    module.__class__ = cls
    place: Place = module.__dict__.pop(STATE)
    if place.left is None:
        place.left = UNDONE
    methods = plan(cls).methods
    back = {vars(fused)[name]: planned.original for name, planned in methods.items()}
    rebind(module, back)


def rebind(module: nn.Module, functions: dict[Any, Any]) -> None:
    """Point the module's own bound methods, as hooks keep them, to other functions."""
    for name, value in list(module.__dict__.items()):
        if isinstance(value, MethodType) and value.__self__ is module:
            new = functions.get(value.__func__)
            if new is not None:
                module.__dict__[name] = MethodType(new, module)


def replaced(module: nn.Module, forward: Any) -> str | None:
    """Why a new forward of ``module`` in place of ``forward`` would not run, if it would not.

    Hooks that wrap a forward keep the method they wrap beside it, which :func:`rebind` changes.
    """
    own = module.__dict__
    if "forward" not in own:
        return None
    kept = [v for v in own.values() if isinstance(v, MethodType) and v.__self__ is module]
    if any(method.__func__ is forward for method in kept):
        return None
    return "its forward was replaced by another on this instance"
