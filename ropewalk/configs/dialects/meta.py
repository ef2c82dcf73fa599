"""params.json of Meta's and Mistral's own releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.reader import store_of
from ropewalk.configs.value import Value

NAME = "params.json"

PLAIN = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "max_seq_len": "max_position_embeddings",
    "max_position_embeddings": "max_position_embeddings",
    "head_dim": "head_dim",
    "rope_theta": "rope_theta",
    "qk_rope_head_dim": "qk_rope_head_dim",
    "qk_nope_head_dim": "qk_nope_head_dim",
    "sliding_window": "sliding_window",
    "ropewalk_layout": "ropewalk_layout",
}
LLAMA3 = {
    "factor": (("rope_scaling_factor", "rope_scale_factor", "scale_factor"), 8.0),
    "low_freq_factor": (("low_freq_factor",), 1.0),
    "high_freq_factor": (("rope_high_freq_factor", "high_freq_factor"), 4.0),
    "original_max_position_embeddings": (("original_max_seq_len",), 8192),
}
"""Keys of the scaling, and the constants of Meta's code where the file has none."""

YARN = {
    "factor": "factor",
    "original_max_position_embeddings": "original_max_position_embeddings",
    "beta": "beta_fast",
    "alpha": "beta_slow",
}
"""Mistral's names of YaRN's numbers."""


def matches(config: Mapping[str, Any]) -> bool:
    """By dim and n_heads, and no model_type."""
    return "model_type" not in config and {"dim", "n_heads"} <= set(config)


def translate(config: Mapping[str, Any]) -> dict[str, Value]:
    """Interleaved pairs; use_scaled_rope is the scaling of Llama 3.1."""
    given = store_of(config)
    store = {own: given[key] for key, own in PLAIN.items() if key in given}
    store["@layout"] = Value("interleaved", "class default")
    store["@dialect"] = Value(NAME, "class default")
    if "rope_theta" not in store:
        store["rope_theta"] = Value(10000.0, "class default")
    flag = given.get("use_scaled_rope")
    if flag is not None and flag.value is True:
        block = {"rope_type": Value("llama3", flag.source)}
        for own, (names, usual) in LLAMA3.items():
            found = next((given[n] for n in names if n in given), None)
            block[own] = found or Value(usual, "class default")
        store["rope_scaling"] = Value(block, flag.source)
    yarn = given.get("yarn")
    if yarn is not None and isinstance(yarn.value, Mapping):
        block = {"rope_type": Value("yarn", yarn.source)}
        for name, own in YARN.items():
            if name in yarn.value:
                block[own] = Value(yarn.value[name], f"file:yarn.{name}")
        if yarn.value.get("apply_scale") is False:
            block["attention_factor"] = Value(1.0, "file:yarn.apply_scale")
        store["rope_scaling"] = Value(block, yarn.source)
    return store
