"""What a group of layers does with position, in phrases that a newcomer can read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ropewalk.cli.output import number

if TYPE_CHECKING:
    from ropewalk.configs import LayerGroup, Resolved

AXES = {"T": "time", "H": "height", "W": "width", "P": "text"}

STILL = {
    "learned": "learned: a trained vector for each position is added; no rotation",
    "sinusoidal": "sinusoidal: fixed sines and cosines are added; no rotation",
    "alibi": "alibi: attention scores fall linearly with distance; no rotation",
    "t5": "t5: a trained number for each range of distances is added to scores; no rotation",
    "none": "none: no rotation here (NoPE)",
    "other": "other: no rotation; position enters in a way of this model's own",
}

DETAILS = {
    "heads": "{} heads, each with its slope",
    "buckets": "{} buckets",
    "max_distance": "all distances beyond {} alike",
    "row_of_first_position": "position 0 is row {} of the table",
    "rows": "{} rows",
    "tokens": "room for {} tokens",
    "layer_types": "of kind {}",
}

NAMES = {
    "layers": "which layers",
    "layout": "which lanes pair",
    "rope_type": "rope_type",
    "head_dim": "head_dim",
    "rotary_dim": "how many lanes turn",
    "theta": "theta",
}


def layer_words(group: LayerGroup, part: Resolved) -> str:
    """Which layers, in the shorter of two ways: ``"3, 7, …, 35"`` or ``"all but 3, 7, …, 35"``."""
    from ropewalk.configs.resolved import ranges

    named = ranges(group.layers)
    inside = set(group.layers)
    rest = tuple(sorted(i for g in part.layers for i in g.layers if i not in inside))
    spared = f"all but {ranges(rest)}"
    return spared if rest and len(spared) < len(named) else named


def phrases(group: LayerGroup) -> list[str]:
    """What the layers do, the most important first; a line may break between phrases."""
    if group.kind != "rotary":
        words = STILL.get(group.kind, f"{group.kind}: no rotation")
        return [*words.split("; "), *_details(group)]
    return [part for part in (*_rotation(group), _axes(group)) if part]


def _details(group: LayerGroup) -> list[str]:
    """What else is known of layers that do not rotate."""
    told = {key: value for key, value in group.details.items() if value is not None}
    if not told.get("row_of_first_position"):
        told.pop("row_of_first_position", None)
    return [DETAILS.get(key, f"{key} {{}}").format(_shown(value)) for key, value in told.items()]


def _shown(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _rotation(group: LayerGroup) -> list[str]:
    words = [f"rotate q and k (RoPE), theta {theta(group.theta)}", _scaling(group)]
    words += [f"other frequencies beyond {v.above:,} tokens" for v in group.variants]
    if group.attention_factor != 1:
        words.append(f"cos and sin × {group.attention_factor:.5g}")
    if group.softmax_scale_factor != 1:
        words.append(f"softmax scale × {group.softmax_scale_factor:.5g}")
    return [*words, *_lanes(group), _turns(group)]


def theta(value: float | None) -> str:
    """A theta as people write it: 500,000 or 1.115884e+07."""
    if value is None:
        return "unknown"
    whole = float(value).is_integer() and abs(value) < 1e12
    return f"{int(value):,}" if whole else f"{value:.7g}"


def _scaling(group: LayerGroup) -> str:
    factor = group.provenance.get("factor")
    times = f" ×{number(factor.value)}" if factor is not None else ""
    if group.rope_type in (None, "default", "axial"):
        return f"unscaled{times}"
    if group.rope_type == "proportional":
        return f"proportional (slow pairs stand still){times}"
    return f"scaled by {group.rope_type}{times}"


def _lanes(group: LayerGroup) -> list[str]:
    """How many lanes of a head turn, and which lane turns with which."""
    count, half = group.rotary_dim, group.rotary_dim // (4 if "halves" in group.details else 2)
    if group.pairing == "proportional":
        count, half = 2 * sum(f != 0 for f in group.inv_freq), group.head_dim // 2
    share = "all" if count == group.head_dim else f"{count} of"
    first = f" (from lane {group.lane_offset})" if group.lane_offset else ""
    pair = "2i with 2i+1" if group.layout == "interleaved" else f"i with i+{half}"
    return [f"{share} {group.head_dim} lanes of a head turn{first}, lane {pair}"]


def _turns(group: LayerGroup) -> str:
    """Positions for a whole turn of the fastest and the slowest pair."""
    turning = [f for f in group.inv_freq if f]
    if not turning:
        return "no frequencies"
    fast, slow = (2 * math.pi / f for f in (max(turning), min(turning)))
    unit = "steps" if group.axes and "H" in group.axes and "T" not in group.axes else "tokens"
    return f"one turn takes {_length(fast)} to {_length(slow)} {unit}"


def _length(value: float) -> str:
    return f"{value:,.0f}" if 100 <= value < 1e12 else f"{value:.3g}"


def _axes(group: LayerGroup) -> str:
    """How many pairs follow each axis, and their order."""
    if not group.axes:
        return ""
    letters = dict.fromkeys(group.axes)
    counts = ", ".join(f"{AXES.get(a, a)} {group.axes.count(a)}" for a in letters)
    start = group.axes[:6] + ("…" if len(group.axes) > 6 else "")
    return f"pairs by axis: {counts} ({start})"


def origin_words(part: Resolved) -> list[str]:
    """Which of the main values the file does not state, and how they are known then."""
    told = []
    for source, how in (("assumed", "assumed"), ("class default", "known from the class")):
        missing = [
            words
            for name, words in NAMES.items()
            if any(_source(group, name) == source for group in part.layers)
        ]
        if missing:
            told.append(f"{', '.join(missing)} ({how})")
    return told


def _source(group: LayerGroup, name: str) -> str | None:
    value = group.provenance.get(name)
    return None if value is None or group.kind != "rotary" else value.source


def context_words(part: Resolved) -> list[str]:
    """To what length: native, scaled and declared, each with what it means."""
    context = part.context
    native, scaled, declared = context.native, context.scaled, context.declared
    where = "in the file" if context.stated else "class default"
    if native is None and scaled is None and declared is None:
        return ["no length stated"]
    if native == scaled == declared:
        return [f"{number(native)} tokens: native = declared", "nothing stretches it"]
    words = []
    if native is not None:
        words.append(f"native {number(native)} tokens (trained)")
    if scaled is not None and scaled != native:
        words.append(f"scaled {number(scaled)} (what the scaling reaches)")
    if declared is not None:
        words.append(f"declared {number(declared)} ({where})")
    if context.readings:
        either = " or ".join(f"{n:,} scaled to {s:,}" for n, s in context.readings)
        words.append(f"can be read as {either}")
    return words
