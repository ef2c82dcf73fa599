"""What a rotation means in practice: short text, float32 angles, layers left unscaled."""

from __future__ import annotations

import struct

from ropewalk.configs.findings import behaviour, lanes, layers
from ropewalk.configs.layouts import LAYOUTS, tell_layout_unread
from ropewalk.configs.parameters import Parameters
from ropewalk.configs.plan import Plan
from ropewalk.configs.reader import Reader
from ropewalk.configs.resolved import Context, ranges
from ropewalk.configs.turned import Rotation

DISTANCE = 100
CHANGED = 0.01
WORTH_TELLING = 1e-3
STATIC = ("linear", "yarn", "llama3", "ntk")


def tell_consequences(
    reader: Reader,
    plan: Plan,
    sets: dict[str, Parameters],
    rotations: dict[str, Rotation],
    context: Context,
) -> None:
    """Add the findings that follow from the frequencies."""
    for label, rotation in rotations.items():
        if not plan.on(label) or rotation.spectrum is None:
            continue
        _short_text(reader, rotation, context)
        _some_layers(reader, plan, label, rotation, rotations)
    del sets
    _fp32(reader, plan, rotations, context)
    _indexer(reader, rotations)


def _short_text(reader: Reader, rotation: Rotation, context: Context) -> None:
    plain, spectrum = rotation.plain, rotation.spectrum
    if plain is None or spectrum is None or rotation.kind.value not in STATIC:
        return
    apart = [DISTANCE * abs(a - b) for a, b in zip(plain.inv_freq, spectrum.inv_freq, strict=True)]
    factor = spectrum.attention_factor
    if max(apart) < CHANGED and factor == 1:
        return
    key = rotation.kind.key
    reader.notes.add(
        behaviour.SHORT_TEXT,
        key.rsplit(".", 1)[0] if key else None,
        rope_type=rotation.kind.value,
        distance=DISTANCE,
        changed=sum(a > CHANGED for a in apart),
        pairs=len(apart),
        radians=float(f"{max(apart):.3g}"),
        factor_words="" if factor == 1 else f", and cos and sin are times {factor:.6g}",
        native="the original length" if context.native is None else context.native,
    )


def _some_layers(
    reader: Reader,
    plan: Plan,
    label: str,
    rotation: Rotation,
    rotations: dict[str, Rotation],
) -> None:
    if rotation.factor is None or rotation.factor.value == 1:
        return
    others = [
        other
        for other, own in rotations.items()
        if own.factor is None and plan.on(other) and own.kind.value == "default"
    ]
    if others:
        reader.notes.add(
            layers.SOME_LAYERS,
            rotation.factor,
            rope_type=rotation.kind.value,
            factor=rotation.factor.value,
            label=label or "some",
            on=ranges(plan.on(label)),
            others=" and ".join(f"{other} ({ranges(plan.on(other))})" for other in others),
        )


def _fp32(reader: Reader, plan: Plan, rotations: dict[str, Rotation], context: Context) -> None:
    """How far float32 products of position and frequency are off at the longest position."""
    length = context.declared or context.native
    if reader.facts.row.get("axes_rule") or any(
        r.kind.value == "axial" for r in rotations.values()
    ):
        return  # positions of an image are small
    used = [r.spectrum for label, r in rotations.items() if plan.on(label) and r.spectrum]
    if length is None or not used or not 2 <= length < 1 << 40:
        return
    worst = max(fp32_error(f, length - 1) for s in used for row in s.matrices[0] for f in row)
    if worst >= WORTH_TELLING:
        reader.notes.add(behaviour.FP32, None, radians=float(f"{worst:.2g}"), position=length - 1)


def fp32_error(frequency: float, position: int) -> float:
    """A bound on the error of the float32 product: that of the frequency, and a half ulp."""
    single = _single(frequency)
    angle = abs(single * position)
    if angle == 0 or angle > 3e38:
        return 0.0
    rounded = _single(angle)
    bits = struct.unpack("<I", struct.pack("<f", rounded))[0]
    above = struct.unpack("<f", struct.pack("<I", bits + 1))[0]
    exact = frequency == 1.0 and position < 1 << 24
    return 0.0 if exact else position * abs(single - frequency) + (above - rounded) / 2


def _single(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return 3.4e38


def _indexer(reader: Reader, rotations: dict[str, Rotation]) -> None:
    """An indexer beside the attention that pairs its lanes in its own way."""
    if reader.raw("index_head_dim") is None and reader.facts.row.get("indexer") is None:
        return
    flag = reader.flag("indexer_rope_interleave")
    own = reader.facts.row.get("indexer")
    if flag is not None and own is not None:
        tell_layout_unread(reader, "indexer_rope_interleave", flag, own, " in its indexer")
    elif flag is not None:
        own = LAYOUTS[flag]
    used = next((r.spectrum.layout for r in rotations.values() if r.spectrum), None)
    if own and used and own != used:
        reader.notes.add(lanes.TWO_LAYOUTS, None, layout=used, indexer=own)
