"""Dialects: each a file that turns its keys into those of transformers, sources kept."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ropewalk.configs.dialects import (
    baichuan,
    chatglm,
    gguf_keys,
    meta,
    mosaic,
    nomic,
    phi_msft,
    qwen1,
    transformers,
)

IN_ORDER: tuple[ModuleType, ...] = (meta, chatglm, qwen1, phi_msft, baichuan, mosaic, nomic)
"""Dialects that know themselves by their keys, the first that matches wins."""


def of(config: Mapping[str, Any], form: str) -> ModuleType:
    """The dialect of a config; transformers' own if no other knows it."""
    if form == "gguf":
        return gguf_keys
    return next((d for d in IN_ORDER if d.matches(config)), transformers)
