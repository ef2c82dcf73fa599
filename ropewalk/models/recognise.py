"""The form of a rotary function, found by running it on small random tensors.

A function is recognised when one form gives its results on every probe that it accepts: tensors
with heads before tokens and after, with and without a batch, tables as wide as the head and
narrower, tables of random numbers (so that every entry that is read shows), tensors longer than
their tables. What refuses a probe, or broadcasts it to another shape, need not take it; what takes
one must match.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ropewalk.models.forms import Form, shapes
from ropewalk.models.places import Place, at
from ropewalk.models.roles import Roles, roles_of
from ropewalk.models.rotation import SECOND, Rotation

HEAD_DIM = 16
_AXES = (1, -2, None, 0, SECOND)
_HEADS_FIRST, _TOKENS_FIRST = (3, 2, 5), (3, 5, 2)
_TOLERANCE = 1e-5
"""Of probes of order 1: functions may compute in float32 what they are given in float64."""
_REFUSALS = (RuntimeError, IndexError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class Probe:
    """Shapes for one call: of the rotated tensors and of the tables, without their lanes."""

    tensors: tuple[tuple[int, ...], ...]
    table: tuple[int, ...]
    width: int
    axis: int | None
    alike: bool = False
    """Whether the tables hold two copies of each angle, as a trusted rotation takes them."""


def recognised(function: Callable[..., Any]) -> Rotation | str:
    """The fused rotation that does what ``function`` does, or why there is none."""
    roles = roles_of(function)
    if roles is None:
        return "its arguments are not tensors and one cos, sin or complex table"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        answered = [(p, wanted) for p in _probes(roles) if (wanted := _run(function, roles, p))]
        if not answered:
            return "it refuses every probe"
        for form, axis in product(shapes(), (None,) if roles.axis else _AXES):
            if len(roles.tables) == 1 and form.tables != "pairs":
                continue
            rotation = Rotation(function, roles, form, axis)
            if all(_matches(rotation, roles, p, wanted) for p, wanted in answered):
                partial = any(_turning(form, p) < HEAD_DIM for p, _ in answered)
                return _with_dtype(rotation, answered[0][0], partial)
    return "what it computes is none of the known forms"


def _probes(roles: Roles) -> Iterator[Probe]:
    count = len(roles.tensors)
    axes = (1, 2, 0) if roles.axis else (None,)
    longer, shorter = (3, 2, 6), (3, 2, 4)
    for axis, width in product(axes, (HEAD_DIM, HEAD_DIM // 2, HEAD_DIM // 4)):
        for x, table in (
            (_HEADS_FIRST, (3, 5)),
            (_TOKENS_FIRST, (3, 5)),
            (_HEADS_FIRST, (3, 1, 5)),
            (_HEADS_FIRST, (5,)),
            (_TOKENS_FIRST, (5,)),
            (_HEADS_FIRST, (1, 5)),
            (_TOKENS_FIRST, (1, 5)),
            (_TOKENS_FIRST, (5, 1)),
            ((5, 2), (5,)),
            ((2, 5), (5,)),
            (longer, (3, 5)),
            (shorter, (3, 5)),
            (longer, (5,)),
        ):
            if axis is not None and axis > len(table):
                continue
            yield Probe((x,) * count, table, width, axis)
            yield Probe((x,) * count, table, width, axis, alike=True)
        if count > 1:
            yield Probe((shorter, *[_HEADS_FIRST] * (count - 1)), (3, 5), width, axis)
            yield Probe((_HEADS_FIRST, *[(3, 1, 5)] * (count - 1)), (3, 5), width, axis)


def _arguments(
    roles: Roles, probe: Probe, dtypes: tuple[torch.dtype, torch.dtype], form: Form | None
) -> dict[str, Any]:
    random = torch.Generator(device="cpu").manual_seed(7)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64, device="cpu")

    given: dict[str, Any] = {
        name: normal(*shape, HEAD_DIM).to(dtypes[0])
        for name, shape in zip(roles.tensors, probe.tensors, strict=True)
    }
    tables = [normal(*probe.table, probe.width).to(dtypes[1]) for _ in range(2)]
    if len(roles.tables) == 1:
        tables = [torch.complex(*(t.float() if dtypes[1].itemsize < 4 else t for t in tables))]
    elif probe.alike and form is not None and form.tables == "both":
        tables = [_doubled(t, form) for t in tables]
    given.update(zip(roles.tables, tables, strict=True))
    if roles.axis is not None:
        given[roles.axis] = probe.axis
    return given


def _doubled(table: Tensor, form: Form) -> Tensor:
    half = table[..., : table.shape[-1] // 2]
    return half.repeat_interleave(2, -1) if form.side_by_side else torch.cat((half, half), -1)


def _run(
    function: Callable[..., Any],
    roles: Roles,
    probe: Probe,
    dtypes: tuple[torch.dtype, torch.dtype] = (torch.float64, torch.float64),
    form: Form | None = None,
) -> tuple[Tensor, ...] | None:
    """What ``function`` makes of a probe, None if it refuses."""
    try:
        result = function(**_arguments(roles, probe, dtypes, form))
    except _REFUSALS:
        return None
    results = result if isinstance(result, tuple) else (result,)
    shapes_kept = len(results) == len(probe.tensors) and all(
        isinstance(r, Tensor) and r.shape == (*shape, HEAD_DIM)
        for r, shape in zip(results, probe.tensors, strict=True)
    )
    return results if shapes_kept else None


def _matches(rotation: Rotation, roles: Roles, probe: Probe, wanted: tuple[Tensor, ...]) -> bool:
    if probe.alike:
        again = _run(rotation.function, roles, probe, form=rotation.form)
        if again is None:
            return False
        wanted = again
    place = Place(agreed={rotation.function.__name__}) if probe.alike else None
    with at(place):
        given = _run(rotation, roles, probe, form=rotation.form)
    return given is not None and all(
        _near(mine, theirs) for mine, theirs in zip(given, wanted, strict=True)
    )


def _turning(form: Form, probe: Probe) -> int:
    """The lanes that turn in a probe."""
    return probe.width * (2 if form.tables == "pairs" else 1)


def _near(mine: Tensor, theirs: Tensor) -> bool:
    return bool((mine.double() - theirs.double()).abs().max() <= _TOLERANCE)


def _with_dtype(rotation: Rotation, probe: Probe, partial: bool) -> Rotation | str:
    """The rotation with the rule by which the function chooses its result's dtype."""
    kinds = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    seen = {
        (a, b): {t.dtype for t in results}
        for a, b in product(kinds, kinds)
        if (results := _run(rotation.function, rotation.roles, probe, (a, b))) is not None
    }
    for rule in ("input", "promoted"):
        form = replace(rotation.form, dtype=rule)
        expected = {(a, b): {a if rule == "input" else torch.promote_types(a, b)} for a, b in seen}
        if seen == expected:
            bare = _gives_q_alone(rotation, probe)
            return Rotation(rotation.function, rotation.roles, form, rotation.axis, bare, partial)
    return "the dtype of its result follows no known rule"


def _gives_q_alone(rotation: Rotation, probe: Probe) -> bool:
    """Whether the function called with k=None returns a tensor and no tuple."""
    if len(rotation.roles.tensors) != 2:
        return False
    given = _arguments(rotation.roles, probe, (torch.float32, torch.float32), None)
    given[rotation.roles.tensors[1]] = None
    try:
        return isinstance(rotation.function(**given), Tensor)
    except _REFUSALS:
        return False
