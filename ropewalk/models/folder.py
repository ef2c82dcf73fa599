"""What is at hand of a model before anything is loaded: its config and its files of weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.configs.sources import MAGIC
from ropewalk.configs.sources import load as config_of
from ropewalk.models.said import said


@dataclass(frozen=True)
class Found:
    """``source`` as it was given, the folder to load from, the GGUF file in it if that is what
    there is, and the keys of the config."""

    source: str
    folder: str
    gguf: str | None
    config: Mapping[str, Any]

    @property
    def file(self) -> Path:
        """The file that holds the config."""
        return Path(self.folder) / (self.gguf or "config.json")


def found(source: str) -> Found:
    """What there is to load at ``source``: a folder with config.json and safetensors files, or
    with one GGUF file; or that file.

    Raises:
        ValueError: there is no model, its config is broken, or a file of weights is missing.
    """
    folder, gguf = _place(Path(source))
    try:
        config = config_of(folder / (gguf or "config.json")).config
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}; make it readable") from None
    if gguf is None:
        _require_weights(folder)
    return Found(source, str(folder), gguf, config)


def _place(path: Path) -> tuple[Path, str | None]:
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder; models are read from this machine only")
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) == MAGIC:
                return path.parent, path.name
        raise ValueError(f"{path} is not a GGUF file; give a model's folder or a GGUF file")
    if (path / "config.json").is_file():
        return path, None
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return path, files[0].name
    if files:
        raise ValueError(f"{path} has no config.json and {len(files)} GGUF files; give one of them")
    meta = "; its params.json is of Meta's own form" if (path / "params.json").is_file() else ""
    raise ValueError(
        f"{path} has no config.json and no GGUF file{meta}; give a folder that a model was saved to"
    )


def _require_weights(folder: Path) -> None:
    """Refuse a folder without safetensors files, or without one that its index names."""
    if not any(folder.glob("*.safetensors")):
        pickles = any(folder.glob("*.bin")) or any(folder.glob("*.pt"))
        raise ValueError(
            f"{folder} has no weights: there is no .safetensors file"
            + ("; pickled weights are not loaded, convert them first" if pickles else "")
        )
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file() or not index.is_file():
        return
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
        lacking = sorted(name for name in names if not (folder / name).is_file())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is no index of weights: {said(error)}; copy it again") from None
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise ValueError(
            f"{folder} lacks the weights of {lacking[0]}{more}, which {index.name} names; give a "
            "complete folder"
        )
