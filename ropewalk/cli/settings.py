"""What options hold: ``--set key=value`` as keyword arguments, lists of whole numbers."""

from __future__ import annotations

import ast
from typing import Any


def parse(
    settings: list[str] | None, option: str = "--set", example: str = "base=500000"
) -> dict[str, Any]:
    """``["base=5e5", "layout=half"]`` as ``{"base": 500000.0, "layout": "half"}``.

    A value that is a Python literal is read as one, anything else as text.

    Raises:
        ValueError: no ``=``, an empty key, or a key given twice.
    """
    result: dict[str, Any] = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key.isidentifier():
            raise ValueError(f"{option} {setting!r} must be KEY=VALUE, such as {option} {example}")
        if key in result:
            raise ValueError(f"{option} gives {key!r} twice; state it once")
        result[key] = _value(value.strip())
    return result


def whole_numbers(text: str, option: str, example: str) -> list[int]:
    """``"512,4096"`` as ``[512, 4096]``.

    Raises:
        ValueError: it is no such list.
    """
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(
            f"{option} {text!r} is no list of whole numbers; write {option} {example}"
        ) from None


def _value(text: str) -> Any:
    if text.lower() in ("true", "false", "none", "null"):
        return {"true": True, "false": False}.get(text.lower())
    if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(text)
    if len(text) > 1000:
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
