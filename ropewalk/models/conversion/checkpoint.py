"""A checkpoint on disk: its config, its files of tensors, and everything beside them.

Weights are read from safetensors only: pickled ones can run code when they are opened.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropewalk.configs.sources import parsed
from ropewalk.models.conversion.header import Entry, Header, read

INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
CONFIGS = ("config.json", "params.json", ADAPTER)
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
OTHER_WEIGHTS = (*PICKLES, ".h5", ".msgpack", ".onnx", ".gguf", ".npz", ".safetensors", ".tflite")
_LARGEST_INDEX = 256 << 20


@dataclass(frozen=True)
class Checkpoint:
    """Files of tensors with their headers; ``beside`` is copied, ``left`` is not."""

    folder: Path
    config_name: str
    config: dict[str, Any]
    headers: tuple[Header, ...]
    index: str | None = None
    beside: tuple[Path, ...] = ()
    left: tuple[str, ...] = ()
    tensors: dict[str, Entry] = field(default_factory=dict)

    @property
    def is_adapter(self) -> bool:
        """Whether it is LoRA for a model and no model itself."""
        return self.config_name == ADAPTER

    @property
    def size(self) -> int:
        """Bytes of all files that a conversion writes."""
        return sum(h.size for h in self.headers) + sum(p.stat().st_size for p in self.beside)


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder, or the file with the config beside it.

    Raises:
        ValueError: it is none, is damaged, or names files that are not there.
        OSError: a file cannot be read.
    """
    if path.suffix in PICKLES:
        raise ValueError(
            f"{path} is a pickle, which can run code when it is opened; save the model as "
            "safetensors first"
        )
    if path.is_file():
        if path.suffix != ".safetensors":
            raise ValueError(f"{path} is neither a safetensors nor a GGUF file, nor a folder")
        return _made(path.parent, [path.name], None, alone=True)
    if not path.is_dir():
        what = "is neither a file nor a folder" if path.exists() else "does not exist"
        raise ValueError(f"{path} {what}; give a model folder, a safetensors or a GGUF file")
    return _made(path, *_weights(path))


def _weights(folder: Path) -> tuple[list[str], str | None]:
    """The files of tensors in a folder, and their index."""
    for index in (INDEX, "consolidated.safetensors.index.json"):
        if (folder / index).exists():
            return sorted(set(_weight_map(folder / index).values())), index
    found = sorted(p.name for p in folder.glob("*.safetensors"))
    for usual in ("model.safetensors", "adapter_model.safetensors"):
        if usual in found:
            return [usual], None
    if len(found) == 1:
        return found, None
    if found:
        raise ValueError(
            f"{folder} has {len(found)} safetensors files and no {INDEX} that says which belong "
            "to the model; give one file, or the index"
        )
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
    if pickles:
        raise ValueError(
            f"{folder} holds pickles ({pickles[0]}), which can run code when they are opened; "
            "save the model as safetensors first"
        )
    raise ValueError(f"{folder} has no safetensors files")


def _weight_map(path: Path) -> dict[str, str]:
    """tensor → file, of an index.

    Raises:
        ValueError: it is damaged, or names a file outside of its folder.
    """
    if not path.is_file() or path.stat().st_size > _LARGEST_INDEX:
        raise ValueError(f"{path} is not a file that could be an index")
    try:
        weights = json.loads(path.read_text(encoding="utf-8")).get("weight_map")
    except (ValueError, RecursionError, AttributeError) as error:
        raise ValueError(f"{path} is no index in JSON: {error}"[:300]) from None
    if not isinstance(weights, dict) or not weights:
        raise ValueError(f"{path} has no weight_map")
    for tensor, name in weights.items():
        plain = isinstance(name, str) and name == Path(name).name and "\\" not in name
        if not plain or not name.endswith(".safetensors"):
            raise ValueError(
                f"{path}: tensor {tensor[:80]} is in {name!r}, which is no safetensors file beside "
                "it"
            )
        if not (path.parent / name).is_file():
            raise ValueError(f"{path} names {name}, which is not there; is the download complete?")
    return weights


def _made(folder: Path, names: list[str], index: str | None, alone: bool = False) -> Checkpoint:
    config_name = next((n for n in _order(names) if (folder / n).is_file()), None)
    if config_name is None:
        raise ValueError(
            f"{folder} has none of {', '.join(CONFIGS)}; what the weights mean stands there"
        )
    config = parsed((folder / config_name).read_bytes(), str(folder / config_name)).config
    headers = tuple(read(folder / name) for name in names)
    tensors: dict[str, Entry] = {}
    for header in headers:
        _require_readable(header)
        for entry in header.entries:
            if entry.name in tensors:
                raise ValueError(f"{header.path}: tensor {entry.name} is in another file too")
            tensors[entry.name] = entry
    if index is not None:
        _require_agreement(folder / index, headers)
    beside, left = ((), ()) if alone else _beside(folder, {*names, config_name})
    return Checkpoint(folder, config_name, dict(config), headers, index, beside, left, tensors)


def _order(names: list[str]) -> tuple[str, ...]:
    """The configs that may go with these files, the likeliest first."""
    if any(name.startswith("adapter") for name in names):
        return (ADAPTER,)
    if any(name.startswith("consolidated") for name in names):
        return ("params.json", "config.json")
    return CONFIGS


def _require_readable(header: Header) -> None:
    """Let the safetensors package open the file too, which others will read it with."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise ImportError(
            "convert needs the package safetensors: pip install 'ropewalk[models]'"
        ) from None
    try:
        with safe_open(str(header.path), framework="np") as file:
            names = set(file.keys())
    except SafetensorError as error:
        raise ValueError(f"{header.path} is no whole safetensors file: {error}") from None
    if names != {entry.name for entry in header.entries}:
        raise ValueError(f"{header.path}: the safetensors package finds other tensors in it")


def _require_agreement(path: Path, headers: tuple[Header, ...]) -> None:
    weights = _weight_map(path)
    held = {entry.name: header.path.name for header in headers for entry in header.entries}
    for tensor in [*weights, *held]:
        if weights.get(tensor) != held.get(tensor):
            raise ValueError(
                f"{path}: tensor {tensor} is in {held.get(tensor, 'no file')} and the index says "
                f"{weights.get(tensor, 'nothing of it')}"
            )


def _beside(folder: Path, taken: set[str]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Other files to copy, and what is left: folders, hidden files, other forms of the weights."""
    copied, left = [], []
    for path in sorted(folder.iterdir()):
        if path.name in taken:
            continue
        weights = path.suffix in OTHER_WEIGHTS or ".index.json" in path.name
        if path.is_file() and not path.name.startswith(".") and not weights:
            copied.append(path)
        elif path.name != INDEX:
            left.append(path.name)
    return tuple(copied), tuple(left)
