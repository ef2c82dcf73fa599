"""Headers of safetensors files, read strictly: what is not whole or not clear is refused.

A file is 8 bytes with the length of a JSON object, this object (name → dtype, shape, and where the
data begin and end), then the data, each byte of them in exactly one tensor.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST = 100_000_000
"""Bytes of header that the safetensors package reads at most."""

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "C64": 64,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
}  # fmt: skip
"""dtype → bits of an element."""


@dataclass(frozen=True)
class Entry:
    """One tensor: where its bytes begin and end in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.begin


@dataclass(frozen=True)
class Header:
    """One file: its path, its first ``start`` bytes, and its tensors in the order of their data."""

    path: Path
    start: int
    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.entries[-1].end if self.entries else self.start


def read(path: Path) -> Header:
    """The header of a file.

    Raises:
        ValueError: it is no whole safetensors file; the message says where it fails.
        OSError: it cannot be opened.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a file")
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if total < 8 or not 2 <= length <= min(LARGEST, total - 8):
            raise ValueError(
                f"{path} is no whole safetensors file: a header of {length} bytes in {total}"
            )
        text = file.read(length)
    start = 8 + length
    entries = sorted(_entries(path, text, start), key=lambda e: (e.begin, e.end))
    at = start
    for entry in entries:
        if entry.begin != at:
            raise ValueError(f"{path}: the data of {entry.name} overlap others or leave a gap")
        at = entry.end
    if at != total:
        what = "is cut off" if at > total else "has bytes behind its data"
        raise ValueError(f"{path} {what}: its header describes {at} bytes, it has {total}")
    return Header(path, start, tuple(entries))


def _entries(path: Path, text: bytes, start: int) -> list[Entry]:
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its header is not clear JSON ({error})"[:300]) from None
    if not isinstance(header, dict):
        raise ValueError(f"{path}: its header is no JSON object")
    header.pop("__metadata__", None)
    return [_entry(path, name, told, start) for name, told in header.items()]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in made if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands there twice")
    return made


def _entry(path: Path, name: str, told: Any, start: int) -> Entry:
    told = told if isinstance(told, dict) else {}
    dtype, shape, offsets = (told.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not (dtype in BITS if isinstance(dtype, str) else False):
        raise ValueError(f"{path}: tensor {name} has the unknown dtype {dtype!r}")
    if not (_whole(shape) and _whole(offsets) and len(offsets) == 2 and len(shape) <= 16):
        raise ValueError(f"{path}: tensor {name} has no proper shape and data_offsets")
    elements = 1
    for size in shape:
        elements *= size
    begin, end = offsets
    if 8 * (end - begin) != elements * BITS[dtype]:
        raise ValueError(
            f"{path}: tensor {name} of {dtype} and shape {shape} does not fill bytes {begin}–{end}"
        )
    return Entry(name, dtype, tuple(shape), start + begin, start + end)


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in numbers)
