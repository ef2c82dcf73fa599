"""Theta and rotated share as lists with a value for each layer; a theta of 0 is no rotation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from ropewalk.configs.findings import layers, numbers
from ropewalk.configs.parameters import ALL, PARTIAL, THETA, Parameters
from ropewalk.configs.plan import Plan
from ropewalk.configs.reader import Reader, number, whole
from ropewalk.configs.value import Value

KEYS = {THETA: ("layer_rope_theta", "rope_theta"), PARTIAL: ("partial_rotary_factors", PARTIAL)}
"""Where a list may stand."""


def by_layer(
    reader: Reader, sets: dict[str, Parameters], count: int
) -> tuple[dict[str, Parameters], list[str | None] | None]:
    """The sets with one for each value of a list, and the label of each layer; None if no list."""
    if ALL not in sets:
        return sets, None
    thetas, shares = (_list(reader, what, count) for what in (THETA, PARTIAL))
    if thetas is None and shares is None:
        return sets, None
    made: dict[str, Parameters] = {}
    labels: list[str | None] = []
    for theta, share in zip(
        thetas or repeat(sets[ALL][THETA], count), shares or repeat(None, count), strict=True
    ):
        own = _read(reader, sets[ALL], theta, share)
        label = None if own is None else f"theta {own[THETA].value:g}"
        if own is not None and label is not None:
            if shares is not None and PARTIAL in own:
                label += f", share {own[PARTIAL].value}"
            made.setdefault(label, own)
        labels.append(label)
    return (made, labels) if made else (sets, labels)


def of_kinds(reader: Reader, sets: dict[str, Parameters], plan: Plan) -> None:
    """Give the set of each kind of layer what a list has for the first layer of that kind."""
    for what in (THETA, PARTIAL):
        if ALL in sets or not any(sets):
            return
        listed = _list(reader, what, len(plan.labels))
        for label in sets if listed is not None else ():
            own = [listed[i] for i in plan.on(label)] if listed is not None else []
            if own and (read := number(own[0], reader.notes)) is not None and read.value > 0:
                sets[label][what] = read
                _tell_apart(reader, label, own)


def _tell_apart(reader: Reader, label: str, own: Sequence[Value]) -> None:
    other = next((value for value in own if value.value != own[0].value), None)
    if other is not None:
        reader.notes.add(
            layers.APART,
            other,
            key=other.source_key,
            value=other.value,
            label=label,
            first=own[0].value,
            first_key=own[0].source_key,
        )


def _read(
    reader: Reader, usual: Parameters, theta: Value, share: Value | None
) -> Parameters | None:
    """The parameters of one layer; None if it does not rotate."""
    read = Value(0, "") if theta.value is None else number(theta, reader.notes)
    if read is not None and read.value < 0:
        used = usual[THETA]
        reader.notes.add(numbers.BAD_THETA, read, key=read.key, value=read.value, used=used.value)
        read = used
    if read is None or read.value == 0:
        return None
    own = {**usual, THETA: read}
    return own if share is None or share.value is None else {**own, PARTIAL: share}


def _list(reader: Reader, what: str, count: int) -> list[Value] | None:
    """The values of a list, wherever it stands, one for each layer."""
    given = _given(reader, what)
    if given is None:
        return None
    items: Sequence[Any] = given.value
    spare = reader.raw("num_nextn_predict_layers")
    more = None if spare is None else whole(spare, reader.notes, at_least=0)
    if len(items) != count and (more is None or len(items) != count + more.value):
        reader.notes.add(layers.LIST_LENGTH, given, key=given.key, length=len(items), layers=count)
        return None
    return [Value(item, f"{given.source}[{i}]") for i, item in enumerate(items[:count])]


def _given(reader: Reader, what: str) -> Value | None:
    found = [reader.raw(key) for key in KEYS[what]]
    block = reader.raw("rope_parameters", "rope_scaling")
    if block is not None and isinstance(block.value, dict) and what in block.value:
        inner = block.value[what]
        found.append(inner if isinstance(inner, Value) else Value(inner, f"{block.source}.{what}"))
    return next((v for v in found if v is not None and isinstance(v.value, (list, tuple))), None)
