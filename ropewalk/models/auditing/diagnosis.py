"""What keys do in place of what the config says."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ropewalk.models.auditing.expected import Expected, assumed
from ropewalk.models.auditing.keys import Keys, allowed, fitting, lone_keys, lone_part, turned
from ropewalk.models.auditing.kinds import results
from ropewalk.models.auditing.kinds import rotation as kinds
from ropewalk.models.auditing.lanes import Seen, Turn, fitted, in_words, seen_in
from ropewalk.models.auditing.notebook import Notebook
from ropewalk.models.auditing.reader import Reader

NEAR = (1, 2, 5, 11)
"""Positions at which keys are looked at first."""
MOST = 512
"""Tokens of which keys are read at most, to solve for a map of lanes."""


def still(keys: Keys) -> bool:
    """Whether keys are the same at every position."""
    return (keys.values - keys.values[:1]).abs().max().item() <= 4 * keys.noise + 1e-9 * keys.scale


def exact(layer: Expected, keys: Keys) -> Tensor:
    """The keys that the config asks for, from those at position 0.

    Raises:
        ValueError: the config speaks of other lanes than there are.
    """
    if not layer.rotates:
        return keys.values[:1].expand_as(keys.values)
    return turned(keys, layer.spectra())


def diagnosed(
    reader: Reader,
    layers: list[Expected],
    wrong: list[Expected],
    found: dict[int, Keys],
    notes: Notebook,
) -> None:
    """Note what each layer of ``wrong`` does, from as many tokens as that needs."""
    if not wrong:
        return
    turning = [e for e in layers if e.rotates and e.layer in found]
    if turning and all(still(found[e.layer]) for e in turning) and _by_place(reader, turning[0]):
        kind = kinds.FIRST_ROW if _alone(reader, turning[0]) else kinds.POSITIONS_IGNORED
        for layer in turning:
            notes.add(kind, layer.layer)
        return
    width = max(found[e.layer].values.shape[-1] for e in wrong)
    tokens = reader.tokens(1, min(MOST, 2 * width))[0]
    more = lone_keys(reader, wrong, NEAR, tokens)
    for layer in wrong:
        if layer.layer in more:
            diagnose(reader, layer, more[layer.layer], notes)


def _by_place(reader: Reader, layer: Expected) -> bool:
    """Whether keys turn in a call of several equal tokens without position_ids."""
    ids = reader.tokens(1, 1).expand(1, 8).contiguous()
    cache = reader(ids, caching=True, last=1).cache
    held = cache.layers[layer.layer]
    for part in (held.keys, held.values):
        if part.dim() == 4 and part.shape[2] == 8 and part.shape[-1] in _widths(layer):
            first, last = part[:, :, 0].double(), part[:, :, -1].double()
            if (first - last).abs().max() > 1e-3 * first.abs().max():
                return True
    return False


def _alone(reader: Reader, layer: Expected) -> bool:
    """Whether the key of a token in a batch of its own turns by its position."""
    ids = reader.tokens(1, 1)
    first, other = (
        lone_part(reader(ids, torch.full_like(ids, p), caching=True).cache.layers, layer)
        for p in (0, 5)
    )
    if first is None or other is None:
        return False
    return bool((first - other).abs().max() > 1e-3 * first.abs().max())


def _widths(layer: Expected) -> tuple[int, int]:
    return layer.group.head_dim, layer.group.rotary_dim


def diagnose(reader: Reader, layer: Expected, keys: Keys, notes: Notebook) -> None:
    """What keys do in place of what the config says."""
    if not bool(keys.values.isfinite().all()):
        what = "keys that are not finite"
        notes.add(results.NO_RESULT, layer.layer, position=NEAR[-1], declared=NEAR[-1], what=what)
        return
    if not layer.rotates:
        notes.add(kinds.TURNS, layer.layer)
        return
    if still(keys):
        notes.add(kinds.STILL, layer.layer, pairs=len(layer.group.inv_freq))
        return
    seen = _seen(keys)
    if seen is None:
        _told_imprecise(reader, layer, keys, notes, " (its keys span too few lanes to say which)")
        return
    wanted = _wanted(layer, keys)
    if wanted is None:
        notes.add(
            kinds.OTHER_LANES,
            layer.layer,
            live=in_words(seen.lanes),
            head_dim=seen.width,
            wanted=f"{layer.group.rotary_dim} of {layer.group.head_dim}",
        )
        return
    pairs = frozenset(wanted)
    lanes = {lane for pair in pairs for lane in pair}
    if {*seen.lanes} - lanes or len({*seen.lanes}) < len(lanes) - _slow(wanted, seen.threshold):
        notes.add(
            kinds.OTHER_LANES,
            layer.layer,
            live=in_words(seen.lanes),
            head_dim=seen.width,
            wanted=in_words(tuple(lanes)),
        )
    elif seen.mixed or seen.pairs - pairs:
        live = min(seen.pairs, default=seen.mixed[:4])
        if assumed(layer.group) and seen.layout is not None:
            stated = layer.group.layout or "unknown"
            notes.add(kinds.LAYOUT_SEEN, layer.layer, live=seen.layout, layout=stated)
            return
        notes.add(
            kinds.OTHER_PAIRS,
            layer.layer,
            live=_pair(live),
            wanted=_pair(min(pairs)),
            layout=layer.group.layout or "unknown",
        )
    else:
        _angles(reader, layer, keys, seen, wanted, notes)


def _pair(lanes: Iterable[int]) -> str:
    return " and ".join(map(str, lanes))


def _seen(keys: Keys) -> Seen | None:
    """What the map of position 1 shows, with pairs so slow that only the last position shows them;
    None if the keys span too few lanes."""
    angles: dict[tuple[int, int], float] = {}
    mixed: set[int] = set()
    threshold = 0.0
    for index in (1, len(keys.positions) - 1):
        mapped = fitted(keys.values[0], keys.values[index])
        if mapped is None:
            return None
        noise = max(1e-4, 40 * keys.noise / keys.scale, _loose(mapped))
        seen, threshold = seen_in(mapped, noise), max(threshold, noise)
        mixed |= {*seen.mixed}
        for turn in seen.turns:
            angle = turn.angle if index == 1 else turn.angle / keys.positions[index]
            angles.setdefault((turn.first, turn.second), angle)
    turns = tuple(Turn(*pair, angle) for pair, angle in angles.items())
    return Seen(turns, tuple(sorted(mixed)), keys.values.shape[-1], threshold)


def _loose(mapped: Tensor) -> float:
    """A threshold above the noise of a map of which most entries are 0."""
    return 20 * mapped.abs().flatten().median().item()


def _wanted(layer: Expected, keys: Keys) -> dict[tuple[int, int], float] | None:
    """Angles at position 1 by pair of lanes; None if keys have another width."""
    try:
        spectra = fitting(layer.spectra(), keys.values.shape[-1])
    except ValueError:
        return None
    angles: dict[tuple[int, int], float] = {}
    for spectrum in spectra:
        lanes = range(spectrum.head_dim)
        first, second = (list(lanes[part]) for part in spectrum.lanes)
        freqs = [sum(column) for column in zip(*spectrum.matrices[0], strict=True)]
        for a, b, f in zip(first, second, freqs, strict=True):
            if f:
                angles[a, b] = f
    return angles


def _slow(wanted: dict[tuple[int, int], float], threshold: float) -> int:
    """Lanes that turn too slowly to be seen at small positions."""
    return sum(2 for f in wanted.values() if abs(f) * NEAR[-1] < max(2e-3, 4 * threshold))


def _angles(
    reader: Reader,
    layer: Expected,
    keys: Keys,
    seen: Seen,
    wanted: dict[tuple[int, int], float],
    notes: Notebook,
) -> None:
    live = {(t.first, t.second): t.angle for t in seen.turns}
    apart = {pair: _off(angle, wanted[pair]) for pair, angle in live.items()}
    opposite = {pair: _off(-angle, wanted[pair]) for pair, angle in live.items()}
    fast = [pair for pair in live if abs(wanted[pair]) > 1e-2]
    if fast and all(opposite[p] < 0.1 * apart[p] for p in fast):
        notes.add(kinds.OTHER_TURN, layer.layer)
        return
    worst = max(apart, key=lambda pair: apart[pair] / (abs(wanted[pair]) + 1e-3), default=None)
    if worst is None or apart[worst] < 5e-3 * abs(wanted[worst]) + 1e-5:
        _told_imprecise(reader, layer, keys, notes, "")
        return
    notes.add(
        kinds.OTHER_ANGLES,
        layer.layer,
        pair=_pair(worst),
        live=f"{live[worst]:.5g}",
        position=1,
        wanted=f"{wanted[worst]:.5g}",
        hint="",
    )


def _off(a: float, b: float) -> float:
    """How far two angles are apart on the circle."""
    turn = torch.tensor(a - b, dtype=torch.float64)
    return torch.atan2(turn.sin(), turn.cos()).abs().item()


def _told_imprecise(
    reader: Reader, layer: Expected, keys: Keys, notes: Notebook, hint: str
) -> None:
    apart = (keys.values - exact(layer, keys)).abs().amax(dim=(1, 2)) / keys.scale
    worst = int(apart.argmax())
    position = keys.positions[worst]
    notes.add(
        kinds.IMPRECISE,
        layer.layer,
        position=position,
        relative=f"{apart[worst].item():.1g}",
        allowed=f"{allowed(reader.dtype, position, keys):.1g}",
        dtype=str(reader.dtype).removeprefix("torch."),
        hint=hint,
    )
