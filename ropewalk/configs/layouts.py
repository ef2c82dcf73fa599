"""How a model pairs its lanes: as a conversion recorded, its class does, or the file says."""

from __future__ import annotations

from ropewalk.configs.findings import lanes as findings
from ropewalk.configs.findings import numbers
from ropewalk.configs.reader import Reader
from ropewalk.configs.value import ASSUMED, CLASS_DEFAULT, Value

LAYOUTS = {True: "interleaved", False: "half"}
KEYS = ("rope_interleave", "rope_interleaved", "rotary_emb_interleaved", "interleaved")

RECORD = "ropewalk_layout"
"""The key in which ``ropewalk convert`` says how the weights pair lanes, where nothing else can."""


def layout_of(reader: Reader) -> Value:
    """How the weights pair lanes: as a conversion recorded, or else as the model's class does."""
    usual = _usual(reader)
    recorded = reader.raw(RECORD)
    if recorded is None:
        return usual
    if recorded.value not in LAYOUTS.values():
        reader.notes.add(
            numbers.WRONG_TYPE,
            recorded,
            key=RECORD,
            value=recorded.value,
            expected='"half" or "interleaved"',
        )
        return usual
    if recorded.value != usual.value:
        reader.notes.add(
            findings.CONVERTED,
            recorded,
            layout=recorded.value,
            usual=usual.value,
            model_type=reader.facts.model_type or "this model",
        )
    return recorded


def _usual(reader: Reader) -> Value:
    stated = reader.store.get("@layout")
    if stated is not None:
        return stated
    key = reader.facts.row.get("layout_key")
    if key and (flag := reader.flag(key)) is not None:
        return Value(LAYOUTS[flag], f"file:{key}")
    flags = ((name, reader.flag(name)) for name in KEYS)
    said = next(((name, flag) for name, flag in flags if flag is not None), None)
    known = reader.facts.row.get("layout")
    if known:
        if said is not None:
            tell_layout_unread(reader, *said, known)
        return Value(known, CLASS_DEFAULT)
    if said is not None:
        return Value(LAYOUTS[said[1]], f"file:{said[0]}")
    return Value("half", ASSUMED)


def tell_layout_unread(reader: Reader, key: str, flag: bool, used: str, where: str = "") -> None:
    """A flag for a pair layout other than the one that the class has."""
    if LAYOUTS[flag] == used:
        return
    reader.notes.add(
        findings.LAYOUT_UNREAD,
        Value(flag, f"file:{key}"),
        key=key,
        value=flag,
        said=LAYOUTS[flag],
        where=where,
        model_type=reader.facts.model_type,
        used=used,
    )
