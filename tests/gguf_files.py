"""GGUF files for tests, written from the specification alone."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

TYPES = {"u8": (0, "B"), "u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"), "u64": (10, "Q")}


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def item(value: Any) -> bytes:
    """A metadata value with its type: str, bool, int, float, or a list of one of them."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    inner = b"".join(item(v)[4:] for v in value)
    (kind,) = struct.unpack("<I", item(value[0])[:4])
    return struct.pack("<IIQ", 9, kind, len(value)) + inner


def gguf(
    keys: Mapping[str, Any],
    tensors: Mapping[str, Sequence[float]] | None = None,
    *,
    version: int = 3,
    others: int = 0,
) -> bytes:
    """A file with these keys, and tensors of float32; ``others`` are named but hold nothing."""
    tensors = tensors or {}
    parts = [b"GGUF", struct.pack("<IQQ", version, len(tensors) + others, len(keys))]
    parts += [text(key) + item(value) for key, value in keys.items()]
    offset = 0
    for name, row in tensors.items():
        parts.append(text(name) + struct.pack("<IQIQ", 1, len(row), 0, offset))
        offset += -(-4 * len(row) // 32) * 32
    for i in range(others):
        name = f"blk.{i}.attn_q.weight"
        parts.append(text(name) + struct.pack("<IQQIQ", 2, 4096, 4096, 2, offset))
    head = b"".join(parts)
    head += b"\0" * (-len(head) % 32)
    data = b"".join(
        struct.pack(f"<{len(row)}f", *row) + b"\0" * (-4 * len(row) % 32)
        for row in tensors.values()
    )
    return head + data


def llama(**changes: Any) -> dict[str, Any]:
    """The keys of a llama, with ``rope__freq_base=…`` for ``llama.rope.freq_base``."""
    keys: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.block_count": 4,
        "llama.context_length": 8192,
        "llama.embedding_length": 512,
        "llama.attention.head_count": 8,
        "llama.rope.dimension_count": 64,
        "llama.rope.freq_base": 500000.0,
    }
    return {**keys, **{f"llama.{k.replace('__', '.')}": v for k, v in changes.items()}}
