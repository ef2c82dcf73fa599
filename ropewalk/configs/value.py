"""A value and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CLASS_DEFAULT = "class default"
ASSUMED = "assumed"


@dataclass(frozen=True)
class Value:
    """``value`` with its ``source``: ``"file:KEY"``, ``"class default"`` or ``"assumed"``."""

    value: Any
    source: str

    @property
    def key(self) -> str | None:
        """The key path in the file, if it stands there."""
        return self.source[5:] if self.source.startswith("file:") else None

    @property
    def source_key(self) -> str:
        """The key path in the file, or the source in words."""
        return self.key or self.source

    def as_dict(self) -> dict[str, Any]:
        """As ``explain --json`` prints it."""
        return {"value": self.value, "source": self.source}


def shown(value: object) -> str:
    """A value for a message: short, on one line."""
    if isinstance(value, Value):
        value = value.value
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < 1e15
        return str(int(value)) if whole else f"{value:.7g}"
    if isinstance(value, int):
        return (
            str(value) if abs(value) < 10**18 else f"about 1e{len(hex(value)) * 1204 // 1000 - 3}"
        )
    if isinstance(value, str):
        return value if len(value) <= 200 else value[:199] + "…"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(shown(item) for item in value[:6])
        return f"[{inner}{', …' if len(value) > 6 else ''}]"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
