"""LoRA adapters: the config of the model they are for, and the layout that they are in.

An adapter adds B·A to a projection. The rows of B are the projection's lanes, so they move as its
rows do; A reads the hidden state and stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.configs import sources
from ropewalk.models.conversion.checkpoint import Checkpoint
from ropewalk.models.conversion.turns import LAYOUTS
from ropewalk.models.conversion.writing import write_text

RECORD_FILE = "ropewalk_layout.json"
"""Beside an adapter: its config has no place for a key that peft does not know."""


@dataclass(frozen=True)
class Model:
    """A config, and what :func:`ropewalk.configs.resolve` reads it from."""

    config: dict[str, Any]
    source: Any


def model_of(found: Checkpoint, base: Any) -> Model:
    """The config of the model, or of the one that an adapter is for.

    Raises:
        ValueError: an adapter without its base, of another kind than LoRA, or a base where none is
            wanted.
    """
    if not found.is_adapter:
        if base is not None:
            raise ValueError("base is for adapters; this checkpoint has its own config")
        named = found.config_name == "config.json"  # a folder may hold params.json beside it
        return Model(found.config, found.folder if named else found.config)
    kind = found.config.get("peft_type")
    if kind != "LORA":
        raise ValueError(
            f"{found.folder} is an adapter of peft_type {kind!r}; how its tensors follow the lanes "
            "of q and k is known for LORA"
        )
    if found.config.get("layer_replication"):
        raise ValueError("an adapter with layer_replication names layers that no config describes")
    if base is None:
        name = found.config.get("base_model_name_or_path")
        raise ValueError(
            f"{found.folder} is an adapter for {name!r}; give the config of that model with --base"
        )
    material = sources.load(base)
    if material.form == "gguf":
        raise ValueError(
            "base must be a config.json or a model folder; adapters of peft are for it"
        )
    return Model(dict(material.config), base)


def recorded_layout(found: Checkpoint) -> str | None:
    """The layout that an earlier conversion recorded beside an adapter.

    Raises:
        ValueError: the record is damaged.
    """
    path = found.folder / RECORD_FILE
    if not found.is_adapter or not path.exists():
        return None
    told = sources.parsed(path.read_bytes(), str(path)).config.get("layout")
    if told not in LAYOUTS:
        raise ValueError(f"{path} says layout {told!r}, which is none")
    return told


def record(folder: Path, to: str, usual: str | None) -> str | None:
    """Record the layout of an adapter, unless it is that of the model's class."""
    if to == usual:
        return None
    told: Mapping[str, Any] = {
        "layout": to,
        "about": "lora_B of q and k pair lanes this way; written by ropewalk convert",
    }
    write_text(folder / RECORD_FILE, json.dumps(told, indent=2) + "\n")
    return RECORD_FILE


def consumers(was: str, to: str) -> list[str]:
    """On which models an adapter is right."""
    return [
        f"right on a base model whose q and k pair lanes {to}",
        f"wrong, without a word, on one that pairs them {was}",
    ]
