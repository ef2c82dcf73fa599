"""The width of a head from the shapes in safetensors headers, where a config leaves it open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ropewalk.configs.reader import NAMES, WIDEST_HEAD
from ropewalk.configs.value import Value

LARGEST = 8 << 20
"""Bytes of headers that are read in all."""

QUERIES = ("self_attn.q_proj.weight", "attention.wq.weight", "attn.q_proj.weight")


def head_dim_of(folder: Path, config: Mapping[str, Any]) -> Value | None:
    """Rows of the first query projection ÷ heads; None if that says nothing, or is stated."""
    if any(config.get(name) is not None for name in NAMES["head_dim"]):
        return None
    heads = next(
        (config[n] for n in NAMES["num_attention_heads"] if type(config.get(n)) is int), None
    )
    if not heads or heads < 0 or "qk_rope_head_dim" in config:
        return None
    left = LARGEST
    for path in sorted(folder.glob("*.safetensors"))[:4]:
        shapes, size = header_shapes(path, left)
        left -= size
        for name in sorted(shapes)[:100_000]:
            if name.endswith(QUERIES):
                rows = shapes[name][0]
                width = rows // heads
                usable = 1 <= width <= WIDEST_HEAD
                return Value(width, f"file:{path.name}:{name}") if usable else None
    return None


def header_shapes(path: Path, largest: int = LARGEST) -> tuple[dict[str, list[int]], int]:
    """(name → shape, bytes read) of a safetensors file; ({}, 0) if its header cannot be read."""
    try:
        if not path.is_file():
            return {}, 0
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= largest:
                return {}, 0
            header = json.loads(file.read(size))
    except (OSError, ValueError, RecursionError):
        return {}, 0
    found = {}
    for name, entry in header.items() if isinstance(header, dict) else ():
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if isinstance(shape, list) and shape and all(type(n) is int for n in shape):
            found[name] = shape
    return found, size
