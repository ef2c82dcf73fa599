"""What a config class of transformers shows by itself: defaults, spellings, kinds of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DIMENSIONS = [
    "hidden_size",
    "num_attention_heads",
    "num_hidden_layers",
    "head_dim",
    "global_head_dim",
    "qk_rope_head_dim",
    "qk_nope_head_dim",
    "rotary_dim",
    "attention_head_dim",
    "max_position_embeddings",
    "original_max_position_embeddings",
    "no_rope_layer_interval",
    "rope_interleave",
    "sliding_window",
    "position_embedding_type",
    "alibi",
]
THETA_KEYS = [
    "rope_theta",
    "rotary_emb_base",
    "rope_local_base_freq",
    "local_rope_theta",
    "global_rope_theta",
    "swa_rope_theta",
    "rotary_embedding_base",
    "compress_rope_theta",
]
PARTIAL_KEYS = ("partial_rotary_factor", "rotary_pct", "rotary_percent", "rotary_dim")
PERIOD_KEYS = [
    "sliding_window_pattern",
    "global_attn_every_n_layers",
    "no_rope_layer_interval",
    "full_attention_interval",
    "full_attn_interval",
    "attn_layer_period",
]
ALL = ""
"""The label of parameters that every layer shares."""


def composite(plain: Any) -> dict[str, str]:
    """key → model_type of the configs nested in this one."""
    keys = getattr(type(plain), "sub_configs", None) or {}
    nested = {key: getattr(plain, key, None) for key in keys}
    return {k: v.model_type for k, v in nested.items() if v is not None and v.model_type}


def field(config: Any, key: str, other: Any = None) -> Any:
    """A field of a config, also where it may differ by layer."""
    mapped = getattr(type(config), "attribute_map", {}).get(key, key)
    try:
        value = getattr(config, key, None)
    except Exception:
        value = None
    value = vars(config).get(mapped) if value is None else value
    return other if value is None else value


def attempt(make: Callable[[], Any]) -> Any:
    """What ``make`` gives, or None if it refuses."""
    try:
        return make()
    except Exception:
        return None


def defaults(config_class: type, plain: Any) -> dict[str, Any]:
    """Fields of the class that a file may leave out; head_dim only if it does not follow others."""
    found = {}
    for key in DIMENSIONS:
        value = field(plain, key)
        if value is not None and isinstance(value, (int, float, str, bool)):
            found[key] = value
    for key in ("hidden_size", "qk_rope_head_dim"):
        if "head_dim" in found and key in found:
            wider = attempt(lambda key=key: config_class(**{key: 2 * found[key]}))
            if wider is not None and field(wider, "head_dim") != found["head_dim"]:
                del found["head_dim"]
    return found


def rope_of(config: Any) -> dict[str, dict[str, Any]]:
    """label → rope parameters, the label ALL if they are not nested; {} if there are none."""
    parameters = getattr(config, "rope_parameters", None)
    if not isinstance(parameters, dict):
        theta = getattr(config, "rope_theta", None)
        return {ALL: {"rope_theta": theta}} if isinstance(theta, (int, float)) else {}
    nested = {k: dict(v) for k, v in parameters.items() if isinstance(v, dict)}
    return nested or ({ALL: dict(parameters)} if parameters else {})


def rope_facts(config_class: type, plain: Any) -> dict[str, Any]:
    """Default parameters, what a given dictionary lacks, and where other spellings go."""
    found: dict[str, Any] = {"rope": rope_of(plain)}
    bare = rope_of(
        attempt(lambda: config_class(rope_scaling={"rope_type": "linear", "factor": 3.5}))
    )
    if bare:
        found["scaling_goes_to"] = sorted(k for k, v in bare.items() if v.get("factor") == 3.5)
        lacking = {
            label: {k: v for k, v in own.items() if k in ("rope_theta", "partial_rotary_factor")}
            for label, own in bare.items()
        }
        if any(lacking.values()) and lacking != {
            label: {k: v for k, v in own.items() if k in ("rope_theta", "partial_rotary_factor")}
            for label, own in found["rope"].items()
        }:
            found["rope_lacking"] = lacking
    goes: dict[str, list[str]] = {}
    for key in THETA_KEYS:
        where = landed(config_class, key, 12345.0, "rope_theta")
        if where:
            goes[key] = where
    for key in PARTIAL_KEYS:
        where = landed(config_class, key, 0.375, "partial_rotary_factor")
        if where:
            goes[key] = where
    found["goes_to"] = goes
    return {key: value for key, value in found.items() if value}


def landed(config_class: type, key: str, value: float, parameter: str) -> list[str]:
    """The labels whose ``parameter`` takes the value that ``key`` was given."""
    scaled = {"rope_scaling": {"rope_type": "linear", "factor": 3.5}}
    for beside in ({}, scaled):
        moved = rope_of(attempt(lambda beside=beside: config_class(**{key: value}, **beside)))
        where = [label for label, own in moved.items() if own.get(parameter) == value]
        if where:
            return sorted(where)
    return []


def layer_facts(config_class: type) -> dict[str, Any]:
    """The types of layers that the class makes up when a file names none."""

    def types(**given: Any) -> list[str] | None:
        made = attempt(lambda: config_class(num_hidden_layers=given.pop("count", 24), **given))
        return list(getattr(made, "layer_types", None) or []) or None

    usual = types()
    if not usual:
        return {}
    found: dict[str, Any] = {"layer_types": pattern(usual)}
    if "list" in found["layer_types"]:
        found["layer_types"] = pattern(list(config_class().layer_types))
    for key in PERIOD_KEYS:
        for period in (3, 5):
            other = types(**{key: period})
            if other and other != usual and pattern(other) != found["layer_types"]:
                found["layer_period"] = key
    return found


def pattern(types: list[str]) -> dict[str, Any]:
    """The shortest repeated pattern, and a last layer that departs from it."""
    for period in range(1, 13):
        repeated = [types[i % period] for i in range(len(types))]
        if repeated == types:
            return {"repeat": types[:period]}
        if repeated[:-1] == types[:-1] and period < len(types) // 2:
            return {"repeat": types[:period], "last": types[-1]}
    return {"list": types}
