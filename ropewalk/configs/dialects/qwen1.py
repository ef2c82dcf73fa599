"""Qwen-1 in the format of its own code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.reader import store_of
from ropewalk.configs.value import Value

NAME = "qwen"


def matches(config: Mapping[str, Any]) -> bool:
    """By its model_type."""
    return config.get("model_type") == "qwen"


def translate(config: Mapping[str, Any]) -> dict[str, Value]:
    """seq_length is the trained length; use_dynamic_ntk makes theta grow by powers of two."""
    store = store_of(config)
    if "rotary_pct" in store and store["rotary_pct"].value is not None:
        store["partial_rotary_factor"] = store.pop("rotary_pct")
    if store.get("use_dynamic_ntk", Value(False, "")).value is True:
        source = "file:use_dynamic_ntk"
        block = {"rope_type": Value("dynamic", source), "factor": Value(2.0, source)}
        store["rope_scaling"] = Value(block, source)
    if "seq_length" in store and store["seq_length"].value is not None:
        store["max_position_embeddings"] = store["seq_length"]
    return store
