"""A function with some of the functions that it calls replaced, for one caller's use.

A call by a global name is pointed to another name of the same module, which is added beside the
first: the function's code, globals, defaults and source lines stay as they are, so debuggers,
``inspect`` and ``torch.compile`` see what they expect, and nobody else's lookup changes. A function
that a decorator holds in its closure gets a new cell.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

FUSED, SETTLED = "__ropewalk", "__ropewalk_settled"
"""Suffixes of the other names: of what runs at a place, and of what runs where it is settled."""


def global_names(code: CodeType) -> set[str]:
    """The names that ``code``, and the functions defined in it, look up as globals."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    for inner in _inner(code):
        names |= global_names(inner)
    return names


def _inner(code: CodeType) -> Iterator[CodeType]:
    yield from (c for c in code.co_consts if isinstance(c, CodeType))


def other_uses(code: CodeType) -> set[str]:
    """Names used in another way than as globals, such as attributes: they cannot be renamed."""
    names = {
        i.argval
        for i in dis.get_instructions(code)
        if i.opcode in dis.hasname and i.opname != "LOAD_GLOBAL"
    }
    for inner in _inner(code):
        names |= other_uses(inner)
    return names


def rewritten(
    function: FunctionType,
    replacement: Callable[[FunctionType], Callable[..., Any] | None],
    suffix: str = FUSED,
) -> FunctionType | None:
    """``function`` with the functions that it calls replaced.

    Args:
        function: any Python function, decorated or not.
        replacement: from a function called, or held in the closure, to what stands in for it;
            None to keep it.
        suffix: of the names added to the function's module.

    Returns:
        A new function, or None where nothing is to be replaced.
    """
    aliases = {}
    mixed = other_uses(function.__code__)
    for name in sorted(global_names(function.__code__)):
        called = function.__globals__.get(name)
        new = replacement(called) if isinstance(called, FunctionType) else None
        if new is not None and name not in mixed:
            aliases[name] = name + suffix
            function.__globals__[name + suffix] = new
    cells = tuple(_cell(cell, replacement) for cell in function.__closure__ or ())
    changed = any(a is not b for a, b in zip(cells, function.__closure__ or (), strict=True))
    if not aliases and not changed:
        return None
    code = _renamed(function.__code__, aliases)
    new = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, cells or None
    )
    new.__kwdefaults__ = function.__kwdefaults__
    new.__annotations__ = function.__annotations__
    new.__qualname__, new.__module__ = function.__qualname__, function.__module__
    new.__doc__ = function.__doc__
    new.__dict__.update(function.__dict__)
    return new


def _renamed(code: CodeType, aliases: dict[str, str]) -> CodeType:
    if not aliases:
        return code
    constants = tuple(
        _renamed(c, aliases) if isinstance(c, CodeType) else c for c in code.co_consts
    )
    names = tuple(aliases.get(name, name) for name in code.co_names)
    return code.replace(co_names=names, co_consts=constants)


def _cell(
    cell: CellType, replacement: Callable[[FunctionType], Callable[..., Any] | None]
) -> CellType:
    try:
        content = cell.cell_contents
    except ValueError:
        return cell
    new = replacement(content) if isinstance(content, FunctionType) else None
    return cell if new is None else CellType(new)
