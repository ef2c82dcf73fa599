"""Stored records of experiments: what a script in ``runs/`` measured, as JSON in the package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def named(prefix: str) -> list[str]:
    """The names of stored records that begin so, in order."""
    folder = files("ropewalk.data").joinpath("records")
    found = (each.name for each in folder.iterdir() if each.name.endswith(".json"))
    return sorted(name[: -len(".json")] for name in found if name.startswith(prefix))


def load(name: str) -> dict[str, Any] | None:
    """The record ``name`` (without ``.json``), or None if this installation has none.

    Raises:
        ValueError: the file is not a JSON object.
    """
    source = files("ropewalk.data").joinpath("records").joinpath(f"{name}.json")
    if not source.is_file():
        return None
    record = json.loads(source.read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError(f"record {name!r} must hold a JSON object")
    return record
