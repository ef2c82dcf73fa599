"""Safetensors files out of a GGUF file, and what they hold held against it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ropewalk.models.conversion import header
from ropewalk.models.conversion.checkpoint import INDEX
from ropewalk.models.conversion.gguf_source import GgufCheckpoint
from ropewalk.models.conversion.header import Entry, Header
from ropewalk.models.conversion.plan import Plan
from ropewalk.models.conversion.probe import Reader
from ropewalk.models.conversion.writing import Tell, moved, taken, write_new, write_text
from ropewalk.models.loading import hushed

SHARD = 5_000_000_000
"""Bytes of a file at most, one tensor at least."""

_TORCH = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}


def write(source: GgufCheckpoint, folder: Path, plan: Plan, to: str, tell: Tell) -> None:
    """All tensors in the layout ``to``, in as many files as needed, and their index."""
    shards = _shards(source)
    data = _turned(source, plan, to)
    weights = {}
    for i, names in enumerate(shards, 1):
        file = "model.safetensors"
        if len(shards) > 1:
            file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        rows = [(n, source.tensors[n].dtype, source.tensors[n].shape) for n in names]
        write_new(folder / file, rows, data, tell)
        weights |= dict.fromkeys(names, file)
    if len(shards) > 1:
        index = {"metadata": {"total_size": source.size}, "weight_map": weights}
        write_text(folder / INDEX, json.dumps(index, indent=2) + "\n")


def _shards(source: GgufCheckpoint) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    held = 0
    for name, stored in source.tensors.items():
        if shards[-1] and held + stored.size > SHARD:
            shards.append([])
            held = 0
        shards[-1].append(name)
        held += stored.size
    return shards


def _turned(source: GgufCheckpoint, plan: Plan, to: str) -> Callable[[str], bytes]:
    def data(name: str) -> bytes:
        stored, turn = source.tensors[name], plan.turns.get(name)
        found = stored.data()
        if turn is None or plan.layout == to:
            return found
        return moved(found, Entry(name, stored.dtype, stored.shape, 0, stored.size), turn, to)

    return data


def require_round_trip(
    source: GgufCheckpoint, folder: Path, plan: Plan, to: str, tell: Tell
) -> tuple[Header, ...]:
    """Every tensor, turned back, is the one of the GGUF file; the headers of what was written.

    Raises:
        ValueError: one is not.
    """
    made = tuple(header.read(path) for path in sorted(folder.glob("*.safetensors")))
    missing = set(source.tensors)
    for one in made:
        with one.path.open("rb") as file:
            for entry in one.entries:
                missing.discard(entry.name)
                data, turn = taken(file, entry), plan.turns.get(entry.name)
                if turn is not None and plan.layout != to:
                    data = moved(data, entry, turn, plan.layout)
                if data != source.tensors[entry.name].data():
                    raise ValueError(f"tensor {entry.name} does not come back as it was")
                tell(entry.size)
    if missing:
        raise ValueError(f"tensor {min(missing)} was not written")
    return made


class GgufReader(Reader):
    """Slices of the tensors of a GGUF file, as they are written."""

    def __init__(self, source: GgufCheckpoint) -> None:
        super().__init__({})
        self.source = source
        self._last: tuple[str, Tensor] | None = None

    def whole(self, name: str) -> Tensor:
        """A tensor as it is written."""
        if self._last is None or self._last[0] != name:
            stored = self.source.tensors[name]
            flat = torch.frombuffer(bytearray(stored.data()), dtype=_TORCH[stored.dtype])
            self._last = name, flat.reshape(stored.shape)
        return self._last[1]

    def names(self) -> list[str]:
        """Of all tensors."""
        return list(self.source.tensors)

    def rows(self, name: str, start: int, count: int, axis: int = 0) -> Tensor:
        """As those of a safetensors file."""
        return self.whole(name).narrow(axis, start, count).to(torch.float64)


def write_tokenizer(source: GgufCheckpoint, folder: Path) -> list[str]:
    """The tokenizer of the GGUF file, as transformers reads it; else a note."""
    try:
        from transformers import AutoTokenizer

        with hushed():
            tokenizer = AutoTokenizer.from_pretrained(
                str(source.path.parent), gguf_file=source.path.name, local_files_only=True
            )
            tokenizer.save_pretrained(folder)
    except Exception as error:  # transformers has no common error for it
        for path in folder.glob("*token*"):
            path.unlink()
        return [f"no tokenizer was written: {type(error).__name__}: {error}"[:200]]
    return ["the tokenizer is the one in the GGUF file, as transformers reads it"]
