"""What rotary functions do with single lanes, against the config."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.configs.resolved import LayerGroup, Resolved
from ropewalk.models.auditing.by_design import FUNCTIONS as NAME
from ropewalk.models.auditing.by_design import excused
from ropewalk.models.auditing.expected import Expected, assumed
from ropewalk.models.auditing.functions import Call, Map, maps_of, recorded
from ropewalk.models.auditing.kinds import rotation as kinds
from ropewalk.models.auditing.notebook import Notebook
from ropewalk.models.auditing.reader import Reader
from ropewalk.models.auditing.report import Check

TOKENS = 13
"""Tokens of the pass; no model has as many heads."""
_SEEN = 1e-6


@dataclass(frozen=True)
class Pairs:
    """Lanes that a map turns together, and their angles at one token."""

    angles: dict[tuple[int, int], float]
    factor: float
    reached: int


def check_functions(reader: Reader, layers: list[Expected], resolved: Resolved) -> Check:
    """Every rotary function as it is called in each layer, and the layers seen to rotate."""
    reason = excused(resolved.text().model_type, NAME)
    if reason is not None:
        return Check.skipped(NAME, reason)
    with recorded(reader.model) as calls:
        reader(reader.tokens(1, TOKENS))
    known = {layer.layer: layer for layer in layers}
    check, notes, seen, unread = Check(NAME), Notebook(), set(), set()
    for call in calls:
        layer = known.get(-1 if call.layer is None else call.layer)
        if layer is None:
            continue
        maps = maps_of(call, TOKENS)
        if maps is None:
            unread.add(call.function.__name__)
            continue
        seen.add(layer.layer)
        if layer.rotates:
            _judge(call, maps, layer, notes)
    notes.write(check)
    if not seen:
        why = f"{', '.join(sorted(unread))} cannot be replayed" if unread else "none was called"
        return Check.skipped(NAME, why)
    names = sorted({c.function.__name__ for c in calls if c.layer in seen})
    check.figures = {"layers": len(seen), "functions": ", ".join(names)}
    return check


def _judge(call: Call, maps: list[Map], layer: Expected, notes: Notebook) -> None:
    name, group = call.function.__name__, layer.group
    for one in maps:
        if one.given != one.returned and one.returned.itemsize > one.given.itemsize:
            given, live = (str(d).removeprefix("torch.") for d in (one.given, one.returned))
            notes.add(kinds.OTHER_DTYPE, layer.layer, function=name, given=given, live=live)
    eps = max(torch.finfo(maps[0].given).eps, _SEEN)
    if len(maps) > 1 and maps[0].values.shape == maps[1].values.shape:
        apart = (maps[0].values - maps[1].values).abs().max().item()
        if apart > 4 * eps:
            notes.add(kinds.Q_UNLIKE_K, layer.layer, function=name, relative=f"{apart:.1g}")
    _judge_pairs(name, maps[-1], group, layer, eps, notes)


def _judge_pairs(
    name: str, one: Map, group: LayerGroup, layer: Expected, eps: float, notes: Notebook
) -> None:
    freqs = [f for f in group.inv_freq if f]
    if "halves" in group.details or any(v.above < TOKENS for v in group.variants) or not freqs:
        return
    found = pairs_of(one.values[-1], eps)
    if found is None or not found.angles:
        return
    layout = _layout(found, group)
    if group.layout is not None and layout not in (None, group.layout):
        first = min(found.angles)
        if assumed(group):
            notes.add(kinds.LAYOUT_SEEN, layer.layer, live=layout, layout=group.layout)
            return
        wanted = (0, 1) if group.layout == "interleaved" else (0, _apart(group))
        notes.add(
            kinds.LAYOUT_OF_FUNCTION,
            layer.layer,
            function=name,
            live=f"{first[0]} and {first[1]}",
            wanted=f"{wanted[0]} and {wanted[1]}",
            layout=group.layout,
        )
    factor = pairs_of(one.values[0], eps)
    held = found.factor if factor is None or not factor.angles else factor.factor
    if abs(held - group.attention_factor) > 4 * eps * max(1.0, group.attention_factor):
        notes.add(
            kinds.FACTOR_NOT_APPLIED,
            layer.layer,
            function=name,
            live=f"{held:.6g}",
            wanted=f"{group.attention_factor:.6g}",
        )
    _judge_angles(name, one.values[1], freqs, layer, eps, notes)


def _judge_angles(
    name: str, mapped: Tensor, freqs: list[float], layer: Expected, eps: float, notes: Notebook
) -> None:
    """Angles at position 1, as a multiset: what no pair of the config turns by."""
    found = pairs_of(mapped, eps)
    if found is None:
        return
    for pair, angle in found.angles.items():
        nearest = min(freqs, key=lambda f: abs(f - abs(angle)))
        if abs(abs(angle) - nearest) > 4 * eps + 1e-5 * nearest:
            notes.add(
                kinds.ANGLES_OF_FUNCTION,
                layer.layer,
                function=name,
                pair=f"{pair[0]} and {pair[1]}",
                live=f"{angle:.5g}",
                position=1,
                wanted=f"{nearest:.5g}",
            )
            return


def pairs_of(mapped: Tensor, eps: float) -> Pairs | None:
    """Lanes with the same image lanes, by twos; None if they mix in another way.

    The images may lie at other lanes than the pair itself, where a function reorders.
    """
    images: dict[tuple[int, ...], list[int]] = {}
    strong = mapped.abs() > 4 * eps
    for lane in range(mapped.shape[1]):
        images.setdefault(tuple(strong[:, lane].nonzero().flatten().tolist()), []).append(lane)
    angles: dict[tuple[int, int], float] = {}
    squares: list[float] = []
    for rows, lanes in images.items():
        if len(rows) == 2 and len(lanes) == 2:
            (c, d), (a, b) = rows, lanes
            angles[a, b] = math.atan2(mapped[d, a].item(), mapped[c, a].item())
            squares.append(float(mapped[c, a] ** 2 + mapped[d, a] ** 2))
        elif len(rows) > 2 or len(lanes) > 2:
            return None
    if not squares:
        norms = (mapped**2).sum(0).sqrt()
        return Pairs({}, norms.max().item(), mapped.shape[1])
    return Pairs(angles, math.sqrt(sum(squares) / len(squares)), mapped.shape[1])


def _layout(found: Pairs, group: LayerGroup) -> str | None:
    pairs = sorted(found.angles)
    if all(b == a + 1 for a, b in pairs) and _apart(group) > 1:
        return "interleaved"
    return "half" if len({b - a for a, b in pairs}) == 1 and _apart(group) > 1 else None


def _apart(group: LayerGroup) -> int:
    width = group.head_dim if group.pairing == "proportional" else group.rotary_dim
    return width // 2
