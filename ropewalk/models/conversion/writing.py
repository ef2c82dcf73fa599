"""Tensors from file to file, some of them with entries moved; one tensor in memory at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ropewalk.models.conversion.header import BITS, Entry, Header
from ropewalk.models.conversion.turns import Turn

CHUNK = 16 << 20
Tell = Callable[[int], None]
"""Called with the bytes that were just done."""


def moved(data: bytes, entry: Entry, turn: Turn, to: str) -> bytes:
    """The bytes of a tensor in the layout ``to``.

    Raises:
        ValueError: elements share bytes.
    """
    if BITS[entry.dtype] % 8:
        raise ValueError(f"tensor {entry.name} of {entry.dtype} packs elements into shared bytes")
    width = BITS[entry.dtype] // 8
    x = np.frombuffer(data, np.uint8).reshape(*entry.shape, width)
    index = turn.sources(entry.shape[turn.axis], to)
    return np.ascontiguousarray(np.take(x, index, axis=turn.axis)).tobytes()


def copy_turned(
    header: Header, target: Path, turns: Mapping[str, Turn], to: str, tell: Tell
) -> None:
    """The same file with the tensors of ``turns`` in the layout ``to``, all else byte for byte."""
    with header.path.open("rb") as source, target.open("xb") as out:
        for block in chunks(source, 0, header.start):
            out.write(block)
        for entry in header.entries:
            if entry.name in turns:
                out.write(moved(taken(source, entry), entry, turns[entry.name], to))
                tell(entry.size)
                continue
            for block in chunks(source, entry.begin, entry.end):
                out.write(block)
                tell(len(block))


def write_new(
    target: Path,
    tensors: Sequence[tuple[str, str, tuple[int, ...]]],
    data: Callable[[str], bytes],
    tell: Tell,
) -> None:
    """A safetensors file of tensors (name, dtype, shape) whose bytes ``data(name)`` gives."""
    told: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, dtype, shape in tensors:
        size = int(np.prod(shape, dtype=np.int64)) * BITS[dtype] // 8
        told[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(told, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with target.open("xb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name, _, _ in tensors:
            block = data(name)
            out.write(block)
            tell(len(block))


def copy_beside(path: Path, folder: Path) -> None:
    """A file that holds no weights, as it is."""
    with path.open("rb") as source, (folder / path.name).open("xb") as out:
        shutil.copyfileobj(source, out)


def write_text(path: Path, text: str) -> None:
    """A small file."""
    with path.open("xb") as out:
        out.write(text.encode())


def taken(file: BinaryIO, entry: Entry) -> bytes:
    """The bytes of one tensor."""
    return b"".join(chunks(file, entry.begin, entry.end))


def chunks(file: BinaryIO, begin: int, end: int) -> Iterator[bytes]:
    """The bytes from ``begin`` to ``end``, a block at a time.

    Raises:
        ValueError: the file has become shorter.
    """
    file.seek(begin)
    while begin < end:
        block = file.read(min(CHUNK, end - begin))
        if not block:
            raise ValueError(f"{file.name} ends at byte {begin}; it was changed while it was read")
        begin += len(block)
        yield block
