"""Theta as a list with a value for each layer, 0 for a layer without rotation."""

from __future__ import annotations

from ropewalk.configs.findings import layers, numbers
from ropewalk.configs.parameters import ALL, THETA, Parameters
from ropewalk.configs.reader import Reader, number
from ropewalk.configs.value import Value

KEYS = ("layer_rope_theta", "rope_theta")


def by_layer(
    reader: Reader, sets: dict[str, Parameters], count: int
) -> tuple[dict[str, Parameters], list[str | None] | None]:
    """The sets with one for each theta of a list, and the label of each layer; None if no list."""
    given = _list(reader, sets)
    if given is None or ALL not in sets:
        return sets, None
    if len(given.value) != count:
        reader.notes.add(
            layers.LIST_LENGTH, given, key=given.key, length=len(given.value), layers=count
        )
        return sets, None
    made: dict[str, Parameters] = {}
    labels: list[str | None] = []
    for i, item in enumerate(given.value):
        theta = (
            Value(0, "")
            if item is None
            else number(Value(item, f"{given.source}[{i}]"), reader.notes)
        )
        if theta is not None and theta.value < 0:
            usual = sets[ALL][THETA]
            reader.notes.add(
                numbers.BAD_THETA, theta, key=theta.key, value=theta.value, used=usual.value
            )
            theta = usual
        if theta is None or theta.value == 0:
            labels.append(None)
            continue
        label = f"theta {theta.value:g}"
        made.setdefault(label, {**sets[ALL], THETA: theta})
        labels.append(label)
    return (made, labels) if made else (sets, labels)


def _list(reader: Reader, sets: dict[str, Parameters]) -> Value | None:
    """The list, wherever it stands."""
    found = [reader.raw(key) for key in KEYS]
    block = reader.raw("rope_parameters", "rope_scaling")
    if block is not None and isinstance(block.value, dict) and THETA in block.value:
        inner = block.value[THETA]
        found.append(inner if isinstance(inner, Value) else Value(inner, f"{block.source}.{THETA}"))
    del sets
    return next((v for v in found if v is not None and isinstance(v.value, (list, tuple))), None)
