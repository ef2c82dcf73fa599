"""ChatGLM2, ChatGLM3, GLM-4 and CodeGeeX4 in the format of their own code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.reader import store_of
from ropewalk.configs.value import Value

NAME = "chatglm"
BASE = 10000.0


def matches(config: Mapping[str, Any]) -> bool:
    """By its model_type, or by keys that only it has."""
    if config.get("model_type") not in (None, "chatglm"):
        return False
    return (
        config.get("model_type") == "chatglm"
        or "original_rope" in config
        or ("rope_ratio" in config and "kv_channels" in config)
    )


def translate(config: Mapping[str, Any]) -> dict[str, Value]:
    """Half of kv_channels rotates, pairs interleaved, theta = 10000 · rope_ratio."""
    store = store_of(config)
    store.setdefault("model_type", Value("chatglm", "assumed"))
    store["@layout"] = Value("interleaved", "class default")
    store.setdefault("partial_rotary_factor", Value(0.5, "class default"))
    ratio = config.get("rope_ratio", 1)
    if isinstance(ratio, (int, float)) and not isinstance(ratio, bool):
        source = "file:rope_ratio" if "rope_ratio" in config else "class default"
        try:
            theta = BASE * float(ratio)
        except OverflowError:
            theta = float("inf")
        store["rope_parameters"] = Value({"rope_theta": Value(theta, source)}, source)
    return store
