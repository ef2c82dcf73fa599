"""The metadata keys of GGUF, which carry the architecture as a prefix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.dialects.gguf_architectures import LAYOUTS, MODEL_TYPES, SECTIONS_INTERLEAVED
from ropewalk.configs.value import ASSUMED, CLASS_DEFAULT, Value

NAME = "gguf"

PLAIN = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "attention.key_length": "head_dim",
    "rope.freq_base": "rope_theta",
    "rope.dimension_count": "rotary_dim",
}
SCALING = {
    "rope.scaling.factor": "factor",
    "rope.scale_linear": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.attn_factor": "attn_factor",
    "rope.scaling.yarn_attn_factor": "attn_factor",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
    "rope.scaling.alpha": "alpha",
}


def translate(config: Mapping[str, Any]) -> dict[str, Value]:
    """Keys of transformers from those of the architecture; tensors as per-pair divisors."""
    architecture = str(config.get("general.architecture", ""))[:60]

    def get(key: str) -> Value | None:
        name = f"{architecture}.{key}"
        return Value(config[name], f"file:{name}") if name in config else None

    store: dict[str, Value] = {
        "model_type": Value(
            MODEL_TYPES.get(architecture, architecture), "file:general.architecture"
        )
    }
    store["@dialect"] = Value(NAME, CLASS_DEFAULT)
    for key, own in PLAIN.items():
        if (value := get(key)) is not None:
            store[own] = value
    heads = get("attention.head_count")
    if heads is not None:
        count = heads.value
        if isinstance(count, list):
            count = next((n for n in count if n), None)
        store["num_attention_heads"] = Value(count, heads.source)
    layout = LAYOUTS.get(architecture)
    if layout == "none":
        store["@kind"] = Value("none", CLASS_DEFAULT)
    else:
        store["@layout"] = Value(layout or "half", CLASS_DEFAULT if layout else ASSUMED)
    store.setdefault("rope_theta", Value(10000.0, CLASS_DEFAULT))
    _latent(store, get)
    _scaling(store, get, config)
    _local(store, get)
    return store


def _latent(store: dict[str, Value], get: Any) -> None:
    """MLA: the head is key_length_mla wide, or key_length, and dimension_count of it rotate."""
    if get("attention.kv_lora_rank") is None:
        return
    width, rope = get("attention.key_length_mla") or get("attention.key_length"), None
    rope = get("rope.dimension_count")
    if width is None or rope is None:
        return
    store.pop("head_dim", None)
    store.pop("rotary_dim", None)
    store["qk_rope_head_dim"] = rope
    if isinstance(width.value, int) and isinstance(rope.value, int):
        store["qk_nope_head_dim"] = Value(width.value - rope.value, width.source)


def _scaling(store: dict[str, Value], get: Any, config: Mapping[str, Any]) -> None:
    block: dict[str, Value] = {}
    for key, own in SCALING.items():
        if own not in block and (value := get(key)) is not None:
            block[own] = value
    kind = get("rope.scaling.type")
    short, long = (config.get(f"@rope_factors_{n}.weight") for n in ("short", "long"))
    if short is not None and long is not None:
        for name, row in (("short", short), ("long", long)):
            tensor = f"file:rope_factors_{name}.weight"
            block[f"{name}_factor"] = Value(list(row), tensor)
        block["rope_type"] = Value("longrope", "file:rope_factors_long.weight")
        if "attn_factor" in block:
            block["attention_factor"] = block.pop("attn_factor")
        block.pop("factor", None)
    elif kind is not None:
        block["rope_type"] = kind
    elif "factor" in block and block["factor"].value not in (0, 1):
        block["rope_type"] = Value("linear", block["factor"].source)
    logarithm = get("rope.scaling.yarn_log_multiplier")
    if logarithm is not None and isinstance(logarithm.value, (int, float)):
        weight = round(logarithm.value / 0.1, 6)
        block["mscale"] = block["mscale_all_dim"] = Value(weight, logarithm.source)
        block.pop("attn_factor", None)
    if block.get("factor", Value(1, "")).value == 0:
        del block["factor"]
    divisors = config.get("@rope_freqs.weight")
    if divisors is not None:
        store["@divisors"] = Value(list(divisors), "file:rope_freqs.weight")
    sections = get("rope.dimension_sections")
    if sections is not None and isinstance(sections.value, list) and any(sections.value):
        block["mrope_section"] = sections
        architecture = str(config.get("general.architecture"))
        interleaved = architecture in SECTIONS_INTERLEAVED
        block["mrope_interleaved"] = Value(interleaved, CLASS_DEFAULT)
    if block:
        if kind is not None and kind.value == "none":
            block = {k: v for k, v in block.items() if k not in ("factor", "attn_factor")}
        block.setdefault("rope_type", Value("default", CLASS_DEFAULT))
        store["rope_scaling"] = Value(block, "file:rope.scaling")


def _local(store: dict[str, Value], get: Any) -> None:
    """Layers with a window, and their own theta and width."""
    theta, pattern = get("rope.freq_base_swa"), get("attention.sliding_window_pattern")
    if theta is not None:
        store["rope_local_base_freq"] = theta
    if pattern is None:
        return
    if isinstance(pattern.value, list):
        kinds = ["sliding_attention" if flag else "full_attention" for flag in pattern.value]
        store["layer_types"] = Value(kinds, pattern.source)
    else:
        store["sliding_window_pattern"] = pattern
