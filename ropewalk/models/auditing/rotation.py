"""Which layers rotate, which lanes, in which pairs, how fast: cached keys against the config."""

from __future__ import annotations

from ropewalk.configs.resolved import ranges
from ropewalk.models.auditing.diagnosis import NEAR, diagnosed, exact
from ropewalk.models.auditing.expected import Expected
from ropewalk.models.auditing.keys import (
    Keys,
    allowed,
    lone_keys,
)
from ropewalk.models.auditing.notebook import Notebook
from ropewalk.models.auditing.reader import Reader
from ropewalk.models.auditing.report import Check
from ropewalk.models.said import said

NAME = "rotation of keys"
UNTURNED = ("none", "alibi", "t5")
"""Kinds of position that leave keys as they are."""
TOKENS = 8


def check_rotation(reader: Reader, layers: list[Expected]) -> tuple[Check, set[int]]:
    """Keys at small positions, and the layers whose keys are as the config says."""
    check = Check(NAME)
    refusal = _refusal(reader, layers)
    if refusal is not None:
        return Check.skipped(NAME, refusal), set()
    try:
        found = lone_keys(reader, layers, NEAR, reader.tokens(1, TOKENS)[0])
    except Exception as error:
        return Check.skipped(NAME, f"lone tokens could not be read: {said(error)}"), set()
    notes, good, unseen, worst = Notebook(), set(), [], 0.0
    wrong: list[Expected] = []
    for layer in layers:
        keys = found.get(layer.layer)
        if keys is None or not (layer.rotates or layer.group.kind in UNTURNED):
            unseen.append(layer.layer)
            continue
        if layer.reason is not None:
            unseen.append(layer.layer)
            continue
        apart = _apart(reader, layer, keys)
        if apart is None:
            good.add(layer.layer)
            worst = max(worst, _missed(layer, keys))
        else:
            wrong.append(layer)
    diagnosed(reader, layers, wrong, found, notes)
    notes.write(check)
    check.figures = {"layers": len(good), "largest": worst}
    if unseen:
        check.figures["not_compared"] = f"layers {ranges(tuple(unseen))}"
    if not good and not notes.layers:
        return Check.skipped(NAME, _why_unseen(layers, found)), set()
    return check, good


def _refusal(reader: Reader, layers: list[Expected]) -> str | None:
    if not layers:
        return "the config describes no layers"
    if "position_ids" not in reader.takes:
        return "its forward takes no position_ids"
    if reader.cached is None:
        return "it keeps no cache of keys"
    return None


def _why_unseen(layers: list[Expected], found: dict[int, Keys]) -> str:
    reasons = [layer.reason for layer in layers if layer.reason is not None]
    if reasons:
        return reasons[0]
    held = sorted({layer.group.kind for layer in layers})
    return (
        f"position of kind {', '.join(held)} is not in the keys"
        if found
        else "no layer of its cache holds keys"
    )


def _missed(layer: Expected, keys: Keys) -> float:
    return (keys.values - exact(layer, keys)).abs().max().item() / keys.scale


def _apart(reader: Reader, layer: Expected, keys: Keys) -> str | None:
    """How keys differ from what the config says, None if they do not."""
    try:
        wanted = exact(layer, keys)
    except ValueError as error:
        return str(error)
    apart = (keys.values - wanted).abs().amax(dim=(1, 2)) / keys.scale
    for position, missed in zip(keys.positions, apart.tolist(), strict=True):
        if not missed <= allowed(reader.dtype, position, keys):
            return f"{missed:.2g} at {position}"
    return None
