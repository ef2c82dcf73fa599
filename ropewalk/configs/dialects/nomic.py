"""nomic-embed and its kin in the format of their own code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.reader import store_of
from ropewalk.configs.value import Value

NAME = "nomic-bert"
KEYS = {"max_trained_positions", "rotary_emb_fraction", "rotary_scaling_factor"}


def matches(config: Mapping[str, Any]) -> bool:
    """By keys that only they have."""
    return bool(KEYS & set(config)) and "rope_parameters" not in config


def translate(config: Mapping[str, Any]) -> dict[str, Value]:
    """rotary_emb_fraction of the head rotates; rotary_scaling_factor is a dynamic factor."""
    store = store_of(config)
    fraction = store.get("rotary_emb_fraction")
    if fraction is not None and fraction.value is not None:
        store["partial_rotary_factor"] = fraction
    factor = store.get("rotary_scaling_factor")
    if factor is not None and factor.value is not None:
        block = {"rope_type": Value("dynamic", factor.source), "factor": factor}
        store["rope_scaling"] = Value(block, factor.source)
    flag = store.get("rotary_emb_interleaved")
    if flag is not None and isinstance(flag.value, bool):
        layout = "interleaved" if flag.value else "half"
        store["@layout"] = Value(layout, flag.source)
    if not isinstance(config.get("model_type"), str):
        store["@layout"] = store.get("@layout", Value("half", "class default"))
    return store
