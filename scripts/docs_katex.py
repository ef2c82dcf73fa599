"""MkDocs hook: put the vendored KaTeX beside the built pages, so equations need no network."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).resolve().parent.parent / "ropewalk" / "report" / "assets" / "vendor"
FILES = ("katex.js", "katex.css", "LICENSES.txt")
FOLDER = "katex"


def on_post_build(config: Mapping[str, Any]) -> None:
    """Copy the files into the site; there is one copy of them in the repository."""
    target = Path(config["site_dir"]) / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(VENDOR / name, target / name)
