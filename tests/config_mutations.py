"""Damaged configs: real ones with keys, values and bytes changed at random, from a seed."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 0.5, -0.0, 1e-300, 1e308, -1e308, 2**31, 2**63, -(2**63),
    10**30, 10**400,
    float("nan"), float("inf"), float("-inf"), "", "2", "1e6", "yarn", "default",
    "\x00\x1b[31m", "ä" * 500, [], [1], [[1]], [None] * 5, [1.0] * 64, [1e999] * 3,
    list(range(3000)), {},
    {"rope_type": "yarn"}, {"a": {"b": {"c": {}}}}, [{"x": 1}], 131072, 32786, 4096.0, 128, 129,
)  # fmt: skip
"""What a key may be given."""

KEYS = [
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rope_type",
    "type",
    "factor",
    "head_dim",
    "hidden_size",
    "num_attention_heads",
    "num_hidden_layers",
    "max_position_embeddings",
    "partial_rotary_factor",
    "rotary_dim",
    "rotary_pct",
    "original_max_position_embeddings",
    "attention_factor",
    "attn_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "low_freq_factor",
    "high_freq_factor",
    "short_factor",
    "long_factor",
    "mrope_section",
    "mrope_interleaved",
    "layer_types",
    "no_rope_layers",
    "qk_rope_head_dim",
    "qk_nope_head_dim",
    "model_type",
    "sliding_window_pattern",
    "text_config",
    "alpha",
    "rope_interleave",
    "kv_channels",
    "rope_ratio",
    "seq_length",
    "attn_config",
    "alibi",
    "position_embedding_type",
    "use_scaled_rope",
    "dim",
    "n_heads",
    "llama_4_scaling_beta",
    "full_attention",
    "sliding_attention",
    "no_rope_layer_interval",
    "global_head_dim",
]
"""Keys that may be put anywhere."""


def objects(value: Any, found: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Every object in a config, itself first."""
    found = [] if found is None else found
    if isinstance(value, dict):
        found.append(value)
        for item in value.values():
            objects(item, found)
    elif isinstance(value, list):
        for item in value[:20]:
            objects(item, found)
    return found


def mutated(config: dict[str, Any], seed: int) -> dict[str, Any]:
    """A copy with one to six changes."""
    chance = random.Random(seed)
    config = copy.deepcopy(config)
    for _ in range(chance.randint(1, 6)):
        target = chance.choice(objects(config))
        keys = list(target)
        act = chance.random()
        if keys and act < 0.45:
            target[chance.choice(keys)] = copy.deepcopy(chance.choice(VALUES))
        elif keys and act < 0.6:
            del target[chance.choice(keys)]
        elif keys and act < 0.7:
            target[chance.choice(KEYS)] = target.pop(chance.choice(keys))
        else:
            target[chance.choice(KEYS)] = copy.deepcopy(chance.choice(VALUES))
    return config


def damaged(config: dict[str, Any], seed: int) -> bytes:
    """The config as JSON with some bytes lost, doubled or replaced."""
    chance = random.Random(seed)
    data = bytearray(json.dumps(config).encode())
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        act = chance.randrange(4)
        if act == 0:
            del data[at : at + chance.randint(1, 40)]
        elif act == 1:
            data[at:at] = data[at : at + chance.randint(1, 40)]
        elif act == 2:
            data[at] = chance.randrange(256)
        else:
            del data[at:]
        if not data:
            data = bytearray(b"{")
    return bytes(data)
