"""The rotary functions that a model really calls, each lane sent through them by itself.

A profile of one pass shows every call of a rotary function with its arguments. Replayed with one
lane at a time set to 1, the same call shows which lanes it turns together, by which angle at each
token, by which factor, in which dtype, and whether q and k get the same.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.models.roles import Roles, called_rotary, roles_of

_OTHER = re.compile(r"index|compress|vis(ion|ual)|audio|tower|mtp|projector")
"""Modules beside a model's own attention, which may rotate in ways of their own."""
_BASES = ("torch.", "transformers.modeling_utils", "transformers.modeling_layers")


@dataclass(frozen=True)
class Call:
    """One call: which function, in which module, with what, and what came out."""

    function: FunctionType
    roles: Roles
    module: str
    layer: int | None
    bound: dict[str, Any]
    result: Any


@dataclass(frozen=True)
class Map:
    """What a call does to one of its tensors: ``[tokens, lanes out, lanes in]`` in float64."""

    name: str
    values: Tensor
    given: torch.dtype
    returned: torch.dtype


def rotary_functions(model: nn.Module) -> dict[Any, tuple[FunctionType, Roles]]:
    """The functions that the classes of a model may rotate with, by their code."""
    found: dict[Any, tuple[FunctionType, Roles]] = {}
    for cls in {type(m) for m in model.modules()}:
        for name, value in _names_of(cls):
            if not isinstance(value, FunctionType) or not called_rotary(name):
                continue
            roles = roles_of(value)
            inner = inspect.unwrap(value)
            if roles is not None and isinstance(inner, FunctionType):
                found[inner.__code__] = inner, roles
    return found


def _names_of(cls: type) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for base in cls.__mro__:
        if base.__module__.startswith(_BASES):
            continue
        for method in vars(base).values():
            inner = inspect.unwrap(method) if callable(method) else None
            if isinstance(inner, FunctionType) and id(inner.__globals__) not in seen:
                seen.add(id(inner.__globals__))
                yield from list(inner.__globals__.items())


@contextmanager
def recorded(model: nn.Module) -> Iterator[list[Call]]:
    """Within it, calls of rotary functions are collected, the first of each module and function."""
    functions = rotary_functions(model)
    names = {id(m): name for name, m in model.named_modules()}
    calls: list[Call] = []
    open_calls: dict[int, tuple[dict[str, Any], str]] = {}
    done: set[tuple[Any, str]] = set()

    def look(frame: Any, event: str, value: Any) -> None:
        if event not in ("call", "return") or frame.f_code not in functions:
            return
        function, roles = functions[frame.f_code]
        if event == "call":
            owner = _owner(frame, names)
            if owner is not None and (frame.f_code, owner) not in done:
                bound = {n: frame.f_locals[n] for n in roles.names if n in frame.f_locals}
                open_calls[id(frame)] = bound, owner
        elif id(frame) in open_calls:
            bound, owner = open_calls.pop(id(frame))
            if value is not None:
                done.add((frame.f_code, owner))
                calls.append(Call(function, roles, owner, _layer(owner), bound, value))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def _owner(frame: Any, names: dict[int, str]) -> str | None:
    """The module that a rotary function was called for."""
    for _ in range(4):
        frame = frame.f_back
        if frame is None:
            return None
        name = names.get(id(frame.f_locals.get("self")))
        if name is not None:
            return name
    return None


def _layer(module: str) -> int | None:
    if _OTHER.search(module):
        return None
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", module)
    return int(numbers[0]) if len(numbers) == 1 else None


def maps_of(call: Call, tokens: int) -> list[Map] | None:
    """What the call does to each of its tensors, lane by lane; None if it cannot be replayed."""
    tensors = {n: x for n in call.roles.tensors if isinstance(x := call.bound.get(n), Tensor)}
    widths = {x.shape[-1] for x in tensors.values()}
    if len(widths) != 1 or not all(x.is_floating_point() for x in tensors.values()):
        return None
    lanes = widths.pop()
    found = _replayed(call, tensors, lanes)
    if found is None:
        return None
    maps = []
    for (name, x), images in zip(tensors.items(), found, strict=True):
        columns = [_by_token(image, tokens) for image in images]
        if any(column is None for column in columns):
            return None
        mapped = torch.stack(columns, dim=-1)  # pyright: ignore[reportArgumentType]
        maps.append(Map(name, mapped, x.dtype, images[0].dtype))
    return maps


def _replayed(call: Call, tensors: dict[str, Tensor], lanes: int) -> list[list[Tensor]] | None:
    """The images of all lanes of each tensor: as rows of one batch, or call by call."""
    try:
        batch = {n: _rows_of_lanes(x, lanes) for n, x in tensors.items()}
        results = _as_tuple(call.function(**{**call.bound, **batch}))[: len(tensors)]
        if all(r.shape[0] == lanes for r in results) and len(results) == len(tensors):
            return [[r[lane : lane + 1] for lane in range(lanes)] for r in results]
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        pass
    found: list[list[Tensor]] = [[] for _ in tensors]
    for lane in range(lanes):
        alone = {n: _one(x, lane) for n, x in tensors.items()}
        try:
            results = _as_tuple(call.function(**{**call.bound, **alone}))[: len(tensors)]
        except (RuntimeError, TypeError, ValueError, IndexError):
            return None
        if len(results) < len(tensors) or not all(isinstance(r, Tensor) for r in results):
            return None
        for images, result in zip(found, results, strict=True):
            images.append(result)
    return found


def _rows_of_lanes(x: Tensor, lanes: int) -> Tensor:
    """A batch with one lane set to 1 in each row.

    Raises:
        ValueError: ``x`` has no batch dimension of 1.
    """
    if x.dim() < 4 or x.shape[0] != 1:
        raise ValueError("no batch of one row")
    rows = torch.eye(lanes, dtype=x.dtype, device=x.device)
    return rows.reshape(lanes, *(1,) * (x.dim() - 2), lanes).expand(lanes, *x.shape[1:])


def _one(x: Tensor, lane: int) -> Tensor:
    alone = torch.zeros_like(x)
    alone[..., lane] = 1
    return alone


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _by_token(out: Tensor, tokens: int) -> Tensor | None:
    """``[tokens, lanes]`` of the first row and head."""
    if out.dim() >= 3 and out.shape[-2] == tokens:
        return out.reshape(-1, tokens, out.shape[-1])[0].double().cpu()
    if out.dim() >= 3 and out.shape[-3] == tokens:
        return out.reshape(-1, tokens, *out.shape[-2:])[0][:, 0].double().cpu()
    return None
