"""Small checkpoints for tests of conversions, written with the safetensors package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rope_theta": 10000.0,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def llama_tensors(config: Mapping[str, Any] = LLAMA) -> dict[str, np.ndarray]:
    """Every tensor of a llama, by the names that transformers gives them."""
    wide, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes = {
        "self_attn.q_proj": (queries, wide),
        "self_attn.k_proj": (keys, wide),
        "self_attn.v_proj": (keys, wide),
        "self_attn.o_proj": (wide, queries),
        "mlp.gate_proj": (inner, wide),
        "mlp.up_proj": (inner, wide),
        "mlp.down_proj": (wide, inner),
        "input_layernorm": (wide,),
        "post_attention_layernorm": (wide,),
    }
    tensors = {
        "model.embed_tokens.weight": normal(config["vocab_size"], wide),
        "model.norm.weight": normal(wide, seed=1),
    }
    for layer in range(config["num_hidden_layers"]):
        for i, (name, shape) in enumerate(shapes.items()):
            tensors[f"model.layers.{layer}.{name}.weight"] = normal(*shape, seed=10 * layer + i + 2)
    return tensors


def save(
    folder: Path,
    tensors: Mapping[str, np.ndarray],
    config: Mapping[str, Any] = LLAMA,
    *,
    shards: int = 1,
) -> Path:
    """A model folder: config, tensors in one file or in several with an index, a tokenizer."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    if shards == 1:
        save_file(dict(tensors), folder / "model.safetensors", {"format": "pt"})
        return folder
    weights: dict[str, str] = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in sorted(tensors)[i::shards]}
        save_file(part, folder / file, {"format": "pt"})
        weights |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def loaded(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor of a folder."""
    return {
        k: v for path in sorted(folder.glob("*.safetensors")) for k, v in load_file(path).items()
    }


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, byte for byte."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
