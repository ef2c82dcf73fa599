"""The axis of each pair: sections of M-RoPE in their orders, and two-dimensional images."""

from __future__ import annotations

from ropewalk.configs.findings import lanes as findings
from ropewalk.configs.findings import numbers
from ropewalk.configs.lanes import Lanes
from ropewalk.configs.parameters import THETA, Parameters
from ropewalk.configs.reader import Reader, whole
from ropewalk.configs.turned import Rotation
from ropewalk.configs.value import CLASS_DEFAULT, Value
from ropewalk.spectra.geometric import powers
from ropewalk.spectra.sections import alternating, blocks, interleaved

SECTION_KEYS = ("mrope_section", "xdrope_section", "rope_section")


def axes_of(reader: Reader, own: Parameters, lane: Lanes, rotation: Rotation) -> Value | None:
    """A letter a pair, or None for one axis; frequencies of image axes are put in place."""
    rule = reader.facts.row.get("axes_rule") or ("2d" if rotation.kind.value == "axial" else None)
    if rule in ("2d", "apart", "pixtral", "normalised", "3d", "whole"):
        return _image(reader, own, lane, rotation, rule)
    if rule == "turns":
        return Value("HW" * (lane.pairs // 2), CLASS_DEFAULT) if lane.pairs % 2 == 0 else None
    return _sections(reader, own, lane)


def _sections(reader: Reader, own: Parameters, lane: Lanes) -> Value | None:
    given = next((own[k] for k in SECTION_KEYS if k in own and own[k].value), None)
    _tell_unread(reader, given)
    if given is None:
        usual = reader.facts.row.get("sections")
        if not usual or sum(usual) != lane.pairs:
            return None
        given = Value(usual, CLASS_DEFAULT)
    sizes = _sizes(reader, given)
    if sizes is None:
        return None
    if sum(sizes) != lane.pairs:
        reader.notes.add(
            findings.SECTIONS,
            given,
            key=given.source_key,
            sections=given.value,
            total=sum(sizes),
            rotary_dim=lane.rotary_dim.value,
            pairs=lane.pairs,
        )
        return None
    return Value(_ordered(reader, own, sizes), given.source)


def _sizes(reader: Reader, given: Value) -> list[int] | None:
    """The sections as ints; trailing zeros, as GGUF has them, dropped."""
    items = given.value
    if not isinstance(items, (list, tuple)) or not 1 <= len(items) <= 6:
        reader.notes.add(
            numbers.WRONG_TYPE,
            given,
            key=given.source_key,
            value=items,
            expected="a list of 1 to 6 whole numbers",
        )
        return None
    read = [
        whole(Value(item, f"{given.source}[{i}]"), reader.notes, at_least=0)
        for i, item in enumerate(items)
    ]
    if any(item is None for item in read):
        return None
    sizes = [item.value for item in read if item is not None]
    while len(sizes) > 1 and sizes[-1] == 0:
        sizes.pop()
    return sizes


def _tell_unread(reader: Reader, given: Value | None) -> None:
    """Sections for a class that turns every pair by one position."""
    row = reader.facts.row
    if given is None or row.get("kind") != "rotary" or "order" in row:
        return
    reader.notes.add(
        findings.SECTIONS_UNREAD,
        given,
        key=given.source_key,
        sections=given.value,
        model_type=reader.facts.model_type,
    )


def _order(reader: Reader, own: Parameters) -> str | None:
    """How the axes follow each other: the class decides where there is one, else the file."""
    known, flag = reader.facts.row.get("order"), own.get("mrope_interleaved")
    if flag is None or not isinstance(flag.value, bool):
        return known
    said = "interleaved" if flag.value else "blocks"
    if known is None or (known == said):
        return said
    if flag.value or known == "interleaved":
        reader.notes.add(
            findings.ORDER_UNREAD,
            flag,
            key=flag.source_key,
            value=flag.value,
            said=_ORDERS[said],
            model_type=reader.facts.model_type,
            used=_ORDERS[known],
        )
    return known


_ORDERS = {"interleaved": "in turns", "blocks": "in blocks", "ernie": "height and width in turns"}


def _ordered(reader: Reader, own: Parameters, sizes: list[int]) -> str:
    order = _order(reader, own)
    if own.get("xdrope_section") is not None or len(sizes) == 4:
        return blocks(sizes, "PWHT")
    if order == "ernie" and len(sizes) == 3:
        return alternating(sizes)
    return interleaved(sizes) if order == "interleaved" else blocks(sizes)


def _image(
    reader: Reader, own: Parameters, lane: Lanes, rotation: Rotation, rule: str
) -> Value | None:
    """Two axes, each with a half of the pairs; no scaling acts on them."""
    if rotation.spectrum is None:
        return None
    if rotation.kind.value not in ("default", "axial", "proportional"):
        reader.notes.add(findings.SCALED_IMAGE, rotation.kind, rope_type=rotation.kind.value)
        rotation.unscale()
    if rule == "3d":
        return _video(own, lane, rotation) if lane.pairs >= 3 else None
    if lane.pairs % 2:
        return None
    half, theta = lane.pairs // 2, float(own[THETA].value)
    if rule == "whole":
        return _alternating(own, lane, rotation)
    if rule == "apart":
        rotation.details["halves"] = "each axis turns the lanes of its own half of the head"
    if rule == "normalised":
        rotation.details["coordinates"] = "2π times the centre of a patch in [−1, 1]"
    if rule == "pixtral":
        row = powers(theta, lane.pairs, lane.rotary_dim.value)
        row = row[0::2] + row[1::2]
    else:
        row = powers(theta, half, lane.rotary_dim.value // 2) * 2
    rotation.spectrum = rotation.plain = rotation.spectrum.replace(freqs=(row,))
    return Value("H" * half + "W" * half, CLASS_DEFAULT)


def _video(own: Parameters, lane: Lanes, rotation: Rotation) -> Value:
    """Three axes, each with a third of the pairs; what is left over does not rotate."""
    assert rotation.spectrum is not None
    each = (lane.rotary_dim.value // 3) // 2
    row = powers(float(own[THETA].value), each, 2 * each) * 3
    rotation.spectrum = rotation.plain = rotation.spectrum.replace(freqs=(row,))
    return Value("T" * each + "H" * each + "W" * each, CLASS_DEFAULT)


def _alternating(own: Parameters, lane: Lanes, rotation: Rotation) -> Value:
    """Two axes in turn, over the whole row of all heads, before it is split into heads."""
    assert rotation.spectrum is not None
    half = lane.pairs // 2
    each = powers(float(own[THETA].value), half, 2 * half)
    row = tuple(f for f in each for _ in "HW")
    rotation.details["width"] = "rotates the whole row before it is split into heads"
    rotation.details["coordinates"] = "rows and columns counted from 1"
    rotation.spectrum = rotation.plain = rotation.spectrum.replace(freqs=(row,))
    return Value("HW" * half, CLASS_DEFAULT)
