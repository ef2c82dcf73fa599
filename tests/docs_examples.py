"""The Python examples of docs/compile-and-export.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "compile-and-export.md"


def documented(word: str, *, has: bool) -> list[str]:
    """The examples that hold ``word``, or those that do not."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    return [block for block in found if (word in block) == has]
