"""What every command shares: JSON on stdout, one line on stderr, exit statuses."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

FINE, NO, UNUSABLE = 0, 1, 2
"""Exit statuses: fine; the answer is no; the input could not be used."""


def print_json(document: Mapping[str, Any] | list[Any]) -> None:
    """One strict JSON document on stdout, non-finite numbers as null."""
    text = json.dumps(finite(document), ensure_ascii=False, indent=2, allow_nan=False)
    print(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def finite(value: Any) -> Any:
    """The same structure with nan and inf replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def complain(message: str) -> None:
    """One line on stderr; line breaks and control characters in it are shown, not obeyed."""
    line = " ".join(str(message).split())
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    encoding = sys.stderr.encoding or "utf-8"
    print(
        "ropewalk:",
        shown.encode(encoding, "backslashreplace").decode(encoding),
        file=sys.stderr,
    )


def number(value: float | None) -> str:
    """A number for a table: three digits, integers whole, nothing for None."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:.3g}"


def console():
    """A rich console that is 80 columns wide at least where the terminal is unknown."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)
