"""Baichuan: rotation at 7B, ALiBi at 13B; the code knows, the file does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.reader import store_of
from ropewalk.configs.value import Value

NAME = "baichuan"
HEADS_WITH_ALIBI = 40


def matches(config: Mapping[str, Any]) -> bool:
    """By its model_type."""
    return config.get("model_type") == "baichuan"


def translate(config: Mapping[str, Any]) -> dict[str, Value]:
    """40 heads are the 13B model, whose class adds ALiBi."""
    store = store_of(config)
    heads = store.get("num_attention_heads")
    if heads is not None and heads.value == HEADS_WITH_ALIBI:
        store["@kind"] = Value("alibi", "class default")
    return store
