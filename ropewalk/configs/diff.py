"""Two configs side by side: the same or not, in frequencies and not in spelling."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from ropewalk.configs.resolved import LayerGroup, Resolved

ROUNDING = 1e-6
"""Relative differences of frequencies up to this are those of float32 files."""

THRESHOLDS = (0.1, 1.0)
"""Phase differences in radians whose first positions are told."""


@dataclass(frozen=True)
class LayerDifference:
    """What differs in layers that differ alike; ``reasons`` is empty where they are the same."""

    layers: tuple[int, ...]
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    first_positions: dict[float, int | None] = field(default_factory=dict, hash=False)
    largest: float = 0.0

    @property
    def same(self) -> bool:
        """Whether these layers do the same."""
        return not self.reasons

    def as_dict(self) -> dict[str, Any]:
        """As ``diff --json`` prints it."""
        return {
            "layers": list(self.layers),
            "same": self.same,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "first_position": {f"{rad:g} rad": at for rad, at in self.first_positions.items()},
            "largest_relative_difference": self.largest,
        }


@dataclass(frozen=True)
class Difference:
    """The whole comparison."""

    layers: tuple[LayerDifference, ...]
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether all layers that both have do the same, and both have as many."""
        return all(layer.same for layer in self.layers)

    def as_dict(self) -> dict[str, Any]:
        """As ``diff --json`` prints it."""
        return {
            "same": self.same,
            "layers": [layer.as_dict() for layer in self.layers],
            "notes": list(self.notes),
        }


def diff(a: Resolved, b: Resolved) -> Difference:
    """Compare two configs layer by layer, the text parts where they have parts.

    Layers are the same if they rotate the same lanes by the same frequencies (to float32 rounding)
    and factors, at every length. A pair layout that differs is a note: weights are stored for it.
    With another number of layers, as of a draft model and its target, the layers that only one has
    are compared with nothing, and the first layer of the shorter stands for what it does.
    """
    first, second = a.text(), b.text()
    ours, theirs = _by_layer(first), _by_layer(second)
    notes: list[str] = []
    if len(ours) != len(theirs):
        notes.append(f"{len(ours)} layers against {len(theirs)}: those that both have are compared")
        count = min(len(ours), len(theirs))
        ours, theirs = ours[:count], theirs[:count]
    for name in ("native", "scaled", "declared"):
        x, y = getattr(first.context, name), getattr(second.context, name)
        if x != y:
            notes.append(f"{name} context {_number(x)} against {_number(y)}")
    compared: dict[tuple[int, int], LayerDifference] = {}
    rows: list[tuple[int, LayerDifference]] = []
    for layer, (x, y) in enumerate(zip(ours, theirs, strict=True)):
        key = (id(x), id(y))
        if key not in compared:
            compared[key] = _layer(x, y)
        rows.append((layer, compared[key]))
    rows.sort(key=lambda row: _key(row[1]))
    merged = []
    for _, alike in groupby(rows, key=lambda row: _key(row[1])):
        members = list(alike)
        found = members[0][1]
        layers = tuple(sorted(layer for layer, _ in members))
        merged.append(
            LayerDifference(
                layers, found.reasons, found.notes, found.first_positions, found.largest
            )
        )
    return Difference(tuple(sorted(merged, key=lambda m: m.layers)), tuple(notes))


def _key(row: LayerDifference) -> tuple[Any, ...]:
    return row.reasons, row.notes, row.largest


def _number(value: int | None) -> str:
    return "not stated" if value is None else f"{value:,}"


def _by_layer(resolved: Resolved) -> list[LayerGroup]:
    """The group of each layer, in order."""
    owner = {layer: group for group in resolved.layers for layer in group.layers}
    return [owner[layer] for layer in sorted(owner)]


def _layer(a: LayerGroup, b: LayerGroup) -> LayerDifference:
    if a.kind != b.kind:
        return LayerDifference((), (f"kind {a.kind} against {b.kind}",))
    if a.kind != "rotary":
        same = a.details == b.details
        return LayerDifference((), () if same else (f"{a.details} against {b.details}",))
    reasons: list[str] = []
    for name in ("head_dim", "rotary_dim", "lane_offset", "pairing"):
        x, y = getattr(a, name), getattr(b, name)
        if x != y:
            reasons.append(f"{name} {x} against {y}")
    notes = () if a.layout == b.layout else (f"layout {a.layout} against {b.layout}",)
    if a.axes != b.axes:
        reasons.append(f"axes {_short(a.axes)} against {_short(b.axes)}")
    for name in ("attention_factor", "softmax_scale_factor"):
        x, y = getattr(a, name), getattr(b, name)
        if not math.isclose(x, y, rel_tol=ROUNDING):
            reasons.append(f"{name} {x:.6g} against {y:.6g}")
    largest, apart = _apart(a.inv_freq, b.inv_freq)
    for above in sorted({v.above for g in (a, b) for v in g.variants}):
        x, y = _beyond(a, above), _beyond(b, above)
        longer, also = _apart(x, y)
        if longer > ROUNDING and largest <= ROUNDING:
            reasons.append(f"frequencies beyond {above:,} tokens")
        largest, apart = max(largest, longer), max(apart, also)
    if len(a.inv_freq) == len(b.inv_freq) and largest > ROUNDING and not reasons:
        reasons.append(f"frequencies: theta {a.theta:g}, {a.rope_type} against "
                       f"{b.theta:g}, {b.rope_type}")  # fmt: skip
    positions: dict[float, int | None] = {}
    if largest > ROUNDING and apart:
        positions = {rad: math.floor(rad / apart) + 1 for rad in THRESHOLDS}
    return LayerDifference((), tuple(reasons), notes, positions, largest)


def _beyond(group: LayerGroup, above: int) -> tuple[float, ...]:
    """Frequencies of a length beyond ``above``."""
    row = group.inv_freq
    for variant in group.variants:
        if variant.above <= above:
            row = variant.inv_freq
    return row


def _apart(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float]:
    """The largest relative and absolute difference of two rows of frequencies."""
    if len(a) != len(b):
        return math.inf, 0.0
    relative = [abs(x - y) / max(abs(x), abs(y)) for x, y in zip(a, b, strict=True) if x != y]
    absolute = [abs(x - y) for x, y in zip(a, b, strict=True)]
    return max(relative, default=0.0), max(absolute, default=0.0)


def _short(axes: str | None) -> str:
    return "one" if axes is None else axes if len(axes) <= 12 else axes[:12] + "…"
