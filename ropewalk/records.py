"""Stored records of experiments: what a script in ``runs/`` measured, as JSON in the package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


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
