"""A record: what one trial leaves, its address, and what makes it one.

The address (``key``) is the SHA-256 of the configuration as JSON, so a record is found by what was
asked and not by when or where it was run. ``made`` says with what it was made.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from ropewalk._version import __version__

FORMAT = 1
"""Of a record; a change of what a number means is a new one."""

Record = dict[str, Any]


def key_of(config: Mapping[str, Any]) -> str:
    """The address of a configuration as JSON."""
    words = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(words.encode()).hexdigest()


def check(record: Any) -> None:
    """Raise ValueError where ``record`` is none of this version.

    The version is asked first: only then is it known what the rest should be.
    """
    made = record.get("made") if isinstance(record, dict) else None
    if not isinstance(made, dict) or "format" not in made or "ropewalk" not in made:
        raise ValueError("this is no record: it does not say what it was made with")
    if made["format"] != FORMAT:
        raise ValueError(
            f"this record is of format {made['format']!r}, and this ropewalk reads {FORMAT}; "
            "name another file, or read this one with the ropewalk that made it"
        )
    if made["ropewalk"] != __version__:
        raise ValueError(
            f"this record is of ropewalk {made['ropewalk']!r}, and this is {__version__}; "
            "name another file, or install the version that made it"
        )
    for name, holds in _SHAPE.items():
        if name not in record:
            raise ValueError(f"this record has no {name!r}")
        if not holds(record[name]):
            raise ValueError(f"{name!r} of this record cannot be {record[name]!r:.80}")
    if record["key"] != key_of(record["config"]):
        raise ValueError(
            "the key of this record is not that of its config: one of them was changed"
        )
    lengths = record["config"]["lengths"]
    if set(record["scores"]) != set(map(str, lengths)):
        raise ValueError(
            f"this record has scores at {list(record['scores'])!r:.80}, and its config asks for "
            f"lengths {lengths!r:.80}"
        )


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    """A finite number, or null: a trained model may give none."""
    if value is None or _whole(value):
        return True
    return isinstance(value, float) and math.isfinite(value)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_number, value))


def _config(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _text(value.get("encoding"))
        and _text(value.get("task"))
        and _whole(value.get("seed"))
        and isinstance(value.get("lengths"), list)
        and len(value["lengths"]) > 0
        and all(map(_whole, value["lengths"]))
    )


_SHAPE: dict[str, Callable[[Any], bool]] = {
    "key": _text,
    "config": _config,
    "unit": _text,
    "better": lambda value: value in ("lower", "higher"),
    "parameters": _whole,
    "loss": _numbers,
    "scores": lambda value: isinstance(value, dict) and all(map(_number, value.values())),
    "curves": lambda value: isinstance(value, dict) and all(map(_numbers, value.values())),
    "diverged": lambda value: value is None or _text(value),
}
