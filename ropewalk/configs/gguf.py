"""GGUF headers, read in one bounded pass: metadata, and the small tensors that rotation needs.

Arrays are skipped, weights never touched, and nothing is allocated by a number in the file.

Source: the GGUF specification of ggml (2023–2026), versions 1 to 3.
"""

from __future__ import annotations

import os
import struct
from typing import Any, BinaryIO

from ropewalk.configs.value import Value

CHUNK = 1 << 20
MOST_KEYS, MOST_TENSORS = 1 << 16, 1 << 18
LONGEST_NAME, LONGEST_TEXT, LONGEST_ARRAY = 1 << 12, 1 << 20, 1 << 13
MOST_ELEMENTS = 1 << 15
"""Bounds far beyond any real file; beyond them a file is refused, or a value left out."""

SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
TEXT, ARRAY = 8, 9
TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
KINDS = {0: ("f", 4), 1: ("e", 2)}
"""Tensor types that are read: F32, F16."""


class Stream:
    """Forward reading through a buffer, with seeks over what is not wanted."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name
        self.size = os.fstat(file.fileno()).st_size
        self.buffer, self.at, self.start = b"", 0, file.tell()

    @property
    def position(self) -> int:
        """The offset in the file of the next byte."""
        return self.start + self.at

    def need(self, count: int) -> None:
        """Have ``count`` bytes in the buffer.

        Raises:
            ValueError: the file ends before.
        """
        if len(self.buffer) - self.at >= count:
            return
        rest = self.buffer[self.at :]
        self.start += self.at
        self.buffer, self.at = rest + self.file.read(max(CHUNK, count - len(rest))), 0
        if len(self.buffer) < count:
            raise ValueError(
                f"{self.name} ends at byte {self.size}, in the middle of its GGUF header"
            )

    def take(self, count: int) -> bytes:
        """The next bytes."""
        self.need(count)
        self.at += count
        return self.buffer[self.at - count : self.at]

    def number(self, code: str) -> Any:
        """The next number of a struct code."""
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def skip(self, count: int) -> None:
        """Pass over ``count`` bytes.

        Raises:
            ValueError: the file ends before.
        """
        target = self.position + count
        if target > self.size:
            raise ValueError(
                f"{self.name} ends at byte {self.size}, in the middle of its GGUF header"
            )
        if len(self.buffer) - self.at >= count:
            self.at += count
        else:
            self.file.seek(target)
            self.buffer, self.at, self.start = b"", 0, target

    def skip_texts(self, count: int, code: str) -> None:
        """Pass over ``count`` strings, each with its length before it as a number of ``code``."""
        length = struct.Struct("<" + code)
        unpack, width, done = length.unpack_from, length.size, 0
        while done < count:
            self.need(width)
            data, at = self.buffer, self.at
            try:
                while done < count:
                    at += width + unpack(data, at)[0]
                    done += 1
            except struct.error:  # the next length lies beyond the buffer
                pass
            self.skip(at - self.at)


class Header(Stream):
    """The parts of a GGUF header, in their order."""

    version = 3

    def length(self) -> int:
        """A count or length; 32 bits in version 1."""
        return self.number("I" if self.version == 1 else "Q")

    def text(self, longest: int) -> str | None:
        """A string; None, and skipped, if it is too long to matter."""
        length = self.length()
        if length > longest:
            self.skip(length)
            return None
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int, keep: bool) -> Any:
        """A metadata value; None if it is not wanted or too long."""
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == TEXT:
            return self.text(LONGEST_TEXT)
        if kind != ARRAY:
            raise ValueError(
                f"{self.name} has a metadata value of unknown type {kind} at byte {self.position}"
            )
        inner, count = self.number("I"), self.length()
        if inner in SCALARS:
            code = SCALARS[inner]
            width = struct.calcsize("<" + code)
            if keep and count <= LONGEST_ARRAY:
                return list(struct.unpack(f"<{count}{code}", self.take(count * width)))
            self.skip(count * width)
        elif inner == TEXT:
            self.skip_texts(count, "I" if self.version == 1 else "Q")
        else:
            raise ValueError(
                f"{self.name} has an array of unknown type {inner} at byte {self.position}"
            )
        return None


def read(file: BinaryIO, name: str) -> tuple[dict[str, Any], str, dict[str, Value]]:
    """(metadata with rope tensors as ``"@NAME"``, ``"gguf"``, nothing more) of an open file.

    Args:
        file: open at byte 4, behind the magic.
        name: for messages.

    Raises:
        ValueError: truncated, of an unknown version, or with numbers that cannot be.
    """
    header = Header(file, name)
    version = header.number("I")
    if version not in (1, 2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        hint = " (a big-endian file, which is not read)" if swapped in (1, 2, 3) else ""
        raise ValueError(f"{name} has GGUF version {version}{hint}; known are 1, 2 and 3")
    header.version = version
    tensors, keys = header.length(), header.length()
    if keys > MOST_KEYS or tensors > MOST_TENSORS:
        raise ValueError(f"{name} claims {keys} keys and {tensors} tensors, which cannot be")
    config: dict[str, Any] = {}
    for _ in range(keys):
        key = header.text(LONGEST_NAME)
        kind = header.number("I")
        wanted = key is not None and not key.startswith("tokenizer.")
        value = header.value(kind, wanted)
        if key is not None and wanted and value is not None:
            config[key] = value
    if not isinstance(config.get("general.architecture"), str):
        raise ValueError(f"{name} has no general.architecture, so it is no model in GGUF")
    for tensor, row in _rope_tensors(header, tensors, config.get("general.alignment")).items():
        config["@" + tensor] = row
    return config, "gguf", {}


def _rope_tensors(header: Header, count: int, alignment: Any) -> dict[str, tuple[float, ...]]:
    """The small tensors of per-pair divisors."""
    found: list[tuple[str, int, int, int]] = []
    for _ in range(count):
        name = header.text(LONGEST_NAME)
        dimensions = header.number("I")
        if dimensions > 8:
            raise ValueError(f"{header.name} has a tensor with {dimensions} dimensions")
        elements = 1
        for _ in range(dimensions):
            elements *= header.length()
        kind, offset = header.number("I"), header.number("Q")
        if name in TENSORS and elements <= MOST_ELEMENTS and kind in KINDS:
            found.append((name, elements, kind, offset))
    step = alignment if isinstance(alignment, int) and 0 < alignment <= 1 << 20 else 32
    base = -(-header.position // step) * step
    rows = {}
    for name, elements, kind, offset in found:
        code, width = KINDS[kind]
        if base + offset + elements * width > header.size:
            raise ValueError(f"{header.name} ends before its tensor {name}")
        header.file.seek(base + offset)
        rows[name] = struct.unpack(f"<{elements}{code}", header.file.read(elements * width))
    return rows
