"""Keys at far positions: precision, tables that end, frequencies that change with the length."""

from __future__ import annotations

import math

from torch import Tensor

from ropewalk.configs import Resolved
from ropewalk.models.auditing.expected import Expected
from ropewalk.models.auditing.keys import Keys, allowed, lone_keys, turned
from ropewalk.models.auditing.kinds import results
from ropewalk.models.auditing.kinds import rotation as kinds
from ropewalk.models.auditing.notebook import Notebook
from ropewalk.models.auditing.reader import Reader
from ropewalk.models.auditing.report import Check

NAME = "keys at far positions"
_USUAL = 4096
_STEPS = 1 << 24
"""Positions that float32 holds exactly."""


def original_length(resolved: Resolved) -> int:
    """The length that a model was first trained for, by its config; else the declared one."""
    text = resolved.text()
    switches = [v.above for group in text.layers for v in group.variants]
    context = text.context
    length = min(switches, default=None) or context.native or context.declared or _USUAL
    return min(length, table_length(resolved) or length)


def table_length(resolved: Resolved) -> int | None:
    """How many tokens a learned table of positions serves; None without one."""
    text = resolved.text()
    held = [group for group in text.layers if group.kind == "learned"]
    told = [n for group in held if isinstance(n := group.details.get("tokens"), int)]
    return min(told, default=text.context.declared) if held else None


def around(length: int, end: int | None = None) -> tuple[int, ...]:
    """Lengths around ``length`` at which something may change, up to the ``end`` of a table."""
    last = min(_STEPS - 1, end or _STEPS)
    return tuple(n for n in (length - 1, length, length + 1, 2 * length) if 1 < n <= last)


def check_far(
    reader: Reader,
    layers: list[Expected],
    good: set[int],
    resolved: Resolved,
    lengths: tuple[int, ...],
) -> Check:
    """Keys at the last position of each length, in the layers that rotate well near by."""
    turning = [e for e in layers if e.layer in good and e.rotates]
    if not turning:
        return Check.skipped(NAME, "no layer was seen to rotate as the config says")
    declared = resolved.text().context.declared or 0
    check, notes = Check(NAME), Notebook()
    tokens = reader.tokens(1, 8)[0]
    worst, refused = 0.0, []
    for length in lengths:
        try:
            found = lone_keys(reader, turning, (length - 1,), tokens)
        except Exception as error:
            refused.append(length)
            if length <= declared and not check.findings:
                check.find(
                    results.NO_RESULT,
                    None,
                    position=length - 1,
                    declared=declared,
                    what=f"{type(error).__name__}: {' '.join(str(error).split())[:120]}",
                )
            continue
        for layer in turning:
            keys = found.get(layer.layer)
            if keys is None or not _known(layer, length):
                continue
            apart = _apart(keys, turned(keys, layer.spectra(length)))
            if apart <= allowed(reader.dtype, length - 1, keys):
                worst = max(worst, apart)
            else:
                _diagnose(reader, layer, keys, length, apart, notes)
    notes.write(check)
    check.figures = {"lengths": ", ".join(map(str, lengths)), "largest": worst}
    if refused:
        check.figures["refused"] = ", ".join(map(str, refused))
    return check


def _known(layer: Expected, length: int) -> bool:
    """Whether the frequencies at this length are known: dynamic NTK states them at one length."""
    beyond = [v for v in layer.group.variants if length > v.above]
    return not beyond or layer.group.rope_type == "longrope" or beyond[-1].at == length


def _apart(keys: Keys, exact: Tensor) -> float:
    return (keys.values - exact).abs().max().item() / keys.scale


def _diagnose(
    reader: Reader, layer: Expected, keys: Keys, length: int, apart: float, notes: Notebook
) -> None:
    position = length - 1
    limit = allowed(reader.dtype, position, keys)
    for other in _other_lengths(layer, length):
        if _apart(keys, turned(keys, layer.spectra(other))) <= limit:
            notes.add(kinds.OTHER_SWITCH, layer.layer, length=length, live=other, wanted=length)
            return
    for alike, what in _alike(keys, layer, length):
        moved = Keys((0, alike), keys.values, keys.noise)
        if _apart(keys, turned(moved, layer.spectra(length))) <= limit:
            notes.add(kinds.PAST_TABLE, layer.layer, position=position, alike=alike, what=what)
            return
    notes.add(
        kinds.IMPRECISE,
        layer.layer,
        position=position,
        relative=f"{apart:.1g}",
        allowed=f"{limit:.1g}",
        dtype=str(reader.dtype).removeprefix("torch."),
        hint="",
    )


def _other_lengths(layer: Expected, length: int) -> list[int]:
    """A length for each other set of frequencies of the layer."""
    here = sum(length > v.above for v in layer.group.variants)
    each = [1, *(v.at for v in layer.group.variants)]
    return [n for i, n in enumerate(each) if i != here]


def _alike(keys: Keys, layer: Expected, length: int) -> list[tuple[int, str]]:
    """Positions that a table which ends before ``length`` may show in place of length − 1."""
    position = length - 1
    found = [(0, "not rotated, or begins again")]
    ends = {1 << n for n in range(4, int(math.log2(length)) + 1)}
    ends |= {length // 2, length - 1, length // 2 - 1}
    for end in sorted(ends - {0, length}):
        found += [
            (end - 1, "that of its last row"),
            (position % end, "counted from its start again"),
        ]
    return [(p, what) for p, what in dict.fromkeys(found) if p != position]
