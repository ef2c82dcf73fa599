"""A GGUF file as a checkpoint of transformers: names, config, and tensors one at a time.

Quantised tensors become float32, which is what their numbers are exactly; others keep their dtype.
llama.cpp stores q and k of some architectures interleaved; nothing is undone here, as that is what
a conversion does.

Source: the GGUF specification and ``tensor_mapping.py`` of ggml's gguf package (2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ropewalk.configs import Resolved, resolve
from ropewalk.configs.emit import emit
from ropewalk.models.conversion.header import BITS

GLOBAL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Names in a block, for the architectures below."""

ASIDE = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that a config of transformers says in its rope parameters."""

CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""general.architecture → class of transformers; other architectures change more than names."""

_SIZES = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "context_length": "max_position_embeddings",
}
_TOKENS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id"}
FLOATS = ("F32", "F16", "BF16", "F64")
DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""What a conversion may write → its name in safetensors."""
_TORCH = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Stored:
    """One tensor: the name it had, and its dtype and shape in safetensors."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    tensor: Any = field(repr=False, hash=False, compare=False)

    @property
    def size(self) -> int:
        """Bytes in safetensors."""
        return int(np.prod(self.shape, dtype=np.int64)) * BITS[self.dtype] // 8

    def data(self) -> bytes:
        """Its bytes in safetensors: dequantised, and rounded if its dtype is narrower."""
        from gguf.quants import dequantize

        kind = self.tensor.tensor_type
        if kind.name == self.dtype:
            return np.ascontiguousarray(self.tensor.data).tobytes()
        try:
            x = torch.from_numpy(np.array(dequantize(self.tensor.data, kind), np.float32))
        except NotImplementedError:
            raise ValueError(
                f"tensor {self.name} is of type {kind.name}, which the gguf package cannot "
                "dequantise; convert it from another file"
            ) from None
        narrow = x.to(_TORCH[self.dtype])
        return narrow.view(torch.uint8).numpy().tobytes()


@dataclass(frozen=True)
class GgufCheckpoint:
    """A GGUF file: its config in the keys of transformers, and its tensors by their names there."""

    path: Path
    resolved: Resolved
    config: dict[str, Any]
    tensors: dict[str, Stored]
    quantised: int
    dtype: str | None = None

    @property
    def size(self) -> int:
        """Bytes that a conversion writes."""
        return sum(stored.size for stored in self.tensors.values())


def is_gguf(path: Path) -> bool:
    """By the first bytes of the file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def open_gguf(path: Path, dtype: str | None = None) -> GgufCheckpoint:
    """What a GGUF file holds, in ``dtype``; None keeps floats and makes quantised ones float32.

    Raises:
        ValueError: it is damaged, or of an architecture that is not known here.
        ImportError: the gguf package is missing.
    """
    resolved = resolve(path)
    try:
        from gguf import GGUFReader
    except ImportError:
        raise ImportError("this needs the package gguf: pip install 'ropewalk[models]'") from None
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no whole GGUF file: {error}"[:300]) from None
    keys = {
        name: f.contents() for name, f in reader.fields.items() if "tokenizer.ggml.t" not in name
    }
    architecture = keys["general.architecture"]
    if architecture not in CLASSES:
        raise ValueError(
            f"{path} is of architecture {architecture}; how its tensors become those of "
            f"transformers is known for {', '.join(CLASSES)}"
        )
    if int(keys.get("split.count", 1)) > 1:
        raise ValueError(f"{path} is a part of a split file; merge the parts first")
    tensors: dict[str, Stored] = {}
    for tensor in reader.tensors:
        if tensor.name in ASIDE:
            continue
        name = _named(tensor.name, path)
        if name in tensors:
            raise ValueError(f"{path} has the tensor {tensor.name} twice")
        shape = tuple(int(n) for n in reversed(tensor.shape.tolist()))
        kind = tensor.tensor_type.name
        own = kind if kind in FLOATS else "F32"
        tensors[name] = Stored(tensor.name, DTYPES[dtype] if dtype else own, shape, tensor)
    _require_whole(path, tensors)
    quantised = sum(t.tensor_type.name not in FLOATS for t in reader.tensors)
    config = _config(keys, architecture, tensors, resolved) | {"dtype": dtype or "float32"}
    return GgufCheckpoint(path, resolved, config, tensors, quantised, dtype)


def _require_whole(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Every layer has the tensors that the first one has.

    Raises:
        ValueError: one lacks some.
    """
    layers: dict[str, set[str]] = {}
    for name in tensors:
        if name.startswith("model.layers."):
            _, _, layer, rest = name.split(".", 3)
            layers.setdefault(layer, set()).add(rest)
    whole = set().union(*layers.values())
    for layer, own in layers.items():
        if own != whole:
            raise ValueError(f"{path}: layer {layer} has no {min(whole - own)}; is it complete?")


def _named(name: str, path: Path) -> str:
    """The name of a tensor in transformers."""
    parts = name.split(".")
    if len(parts) == 2 and parts[0] in GLOBAL:
        return f"{GLOBAL[parts[0]]}.{parts[1]}"
    if len(parts) == 4 and parts[0] == "blk" and parts[1].isdigit() and parts[2] in BLOCK:
        return f"model.layers.{parts[1]}.{BLOCK[parts[2]]}.{parts[3]}"
    raise ValueError(f"{path}: what tensor {name} becomes in transformers is not known")


def _config(
    keys: Mapping[str, Any], architecture: str, tensors: Mapping[str, Stored], resolved: Resolved
) -> dict[str, Any]:
    """The config of the same model in transformers, its position keys as they were resolved.

    Raises:
        ValueError: a size is missing, or transformers cannot do what the file describes.
    """
    embedded = tensors.get("model.embed_tokens.weight")
    if embedded is None:
        raise ValueError("the file has no tensor token_embd.weight")
    config: dict[str, Any] = {
        "architectures": [CLASSES[architecture]],
        "model_type": architecture,
        "vocab_size": embedded.shape[0],
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }
    for key, own in _SIZES.items():
        value = keys.get(f"{architecture}.{key}")
        if value is not None:
            config[own] = _short(value) if isinstance(value, float) else value
    for key, own in _TOKENS.items():
        value = keys.get(f"tokenizer.ggml.{key}")
        if value is not None:
            config[own] = int(value)
    lacking = [own for own in _SIZES.values() if own not in config and own != "num_key_value_heads"]
    if lacking:
        raise ValueError(f"the file does not say {lacking[0]}")
    if any(name.endswith("q_proj.bias") for name in tensors) and architecture == "llama":
        config["attention_bias"] = True
    config |= {k: v for k, v in emit(resolved, "transformers").items() if k != "model_type"}
    return config


def _short(value: float) -> float:
    """The shortest number that is the same float32, as its writer meant it."""
    return float(str(np.float32(value)))
