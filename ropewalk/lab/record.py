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

FILES = "files"
"""Beside the fields of a trial, where encodings were made by own files: their digests by name."""

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
    _check_config(record["config"])
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
    if not set(record["curves"]) <= set(record["scores"]):
        raise ValueError(
            f"this record has curves at {list(record['curves'])!r:.80}, and scores at "
            f"{list(record['scores'])!r:.80}"
        )


def _check_config(config: dict[str, Any]) -> None:
    for name, holds in CONFIG.items():
        if name not in config:
            raise ValueError(f"the config of this record has no {name!r}")
        if not holds(config[name]):
            raise ValueError(
                f"{name!r} in the config of this record cannot be {config[name]!r:.80}"
            )
    if not _texts(config.get(FILES, {})):
        raise ValueError("'files' in the config of this record must be digests by name")
    for name in config:
        if name not in CONFIG and name != FILES:
            raise ValueError(f"the config of this record has {name!r:.80}, which no trial has")


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_text, value.values()))


def _whole(value: Any) -> bool:
    """A whole number of 64 bits: more are none of ours, and no table takes them."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _size(value: Any) -> bool:
    return _whole(value) and value >= 1


def _finite(value: Any) -> bool:
    return _whole(value) or (isinstance(value, float) and math.isfinite(value))


def _number(value: Any) -> bool:
    """A finite number, or null: a trained model may give none."""
    return value is None or _finite(value)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_number, value))


def _lengths(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(map(_size, value))
        and value == sorted(set(value))
    )


def _options(value: Any) -> bool:
    """Of a task: numbers, text and truth values by name."""
    return isinstance(value, dict) and all(
        isinstance(each, bool) or _number(each) or _text(each) for each in value.values()
    )


CONFIG: dict[str, Callable[[Any], bool]] = {
    "encoding": _text,
    "seed": lambda value: _whole(value) and value >= 0,
    "task": _text,
    "task_options": _options,
    "train_length": _size,
    "lengths": _lengths,
    "steps": _size,
    "batch": _size,
    "dim": _size,
    "layers": _size,
    "heads": _size,
    "rate": lambda value: _finite(value) and value > 0,
}
"""What the configuration of a trial holds; whether the values go together, a trial can tell."""


_SHAPE: dict[str, Callable[[Any], bool]] = {
    "key": _text,
    "config": lambda value: isinstance(value, dict),
    "unit": _text,
    "better": lambda value: value in ("lower", "higher"),
    "parameters": lambda value: _whole(value) and value >= 0,
    "made": lambda value: all(_text(each) or _whole(each) for each in value.values()),
    "loss": _numbers,
    "scores": lambda value: isinstance(value, dict) and all(map(_number, value.values())),
    "curves": lambda value: isinstance(value, dict) and all(map(_numbers, value.values())),
    "diverged": lambda value: value is None or _text(value),
}
