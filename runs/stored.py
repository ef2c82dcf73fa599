"""What the scripts that store a record share: it is written whole, or not at all."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ropewalk.lab.race import Progress, label

RECORDS = Path(__file__).resolve().parents[1] / "ropewalk" / "data" / "records"


def write(document: Mapping[str, Any], path: Path) -> None:
    """Put a JSON document in its place."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
    print(f"wrote {path}")


def told(progress: Progress) -> None:
    """A line on stderr for each trial that ends."""
    if progress.trial is not None:
        name = f"{progress.trial.task} {label(progress.trial)}"
        print(f"{progress.done}/{progress.total} {name}", file=sys.stderr, flush=True)
