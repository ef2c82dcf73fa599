"""The command of a script that writes one page of the docs."""

from __future__ import annotations

import sys
from pathlib import Path


def command(text: str, path: Path) -> int:
    """Write the page, or with ``--check`` only say whether it is up to date."""
    if "--check" in sys.argv[1:]:
        same = path.exists() and path.read_text(encoding="utf-8") == text
        print("up to date" if same else f"docs/{path.name} is stale: run make docs-pages")
        return 0 if same else 1
    path.write_text(text, encoding="utf-8")
    return 0
