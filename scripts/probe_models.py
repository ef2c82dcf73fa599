"""Tiny random models of transformers' classes, small enough to build hundreds of them."""

from __future__ import annotations

import inspect
import sys
from typing import Any

HEADS, HEAD_DIM, LAYERS = 2, 16, 12

SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "vocab_size_per_layer_input": 64,
    "num_hidden_layers": LAYERS,
    "num_layers": LAYERS,
    "decoder_layers": 2,
    "encoder_layers": 2,
    "hidden_size": HEADS * HEAD_DIM,
    "embedding_size": HEADS * HEAD_DIM,
    "word_embed_proj_dim": HEADS * HEAD_DIM,
    "d_model": HEADS * HEAD_DIM,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "num_kv_heads": HEADS,
    "num_global_key_value_heads": HEADS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "head_dim": HEAD_DIM,
    "global_head_dim": 2 * HEAD_DIM,
    "attention_head_dim": HEAD_DIM,
    "kv_channels": HEAD_DIM,
    "attention_hidden_size": HEADS * HEAD_DIM,
    "intermediate_size": 32,
    "ffn_hidden_size": 32,
    "expert_ffn_hidden_size": 32,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "shared_expert_intermediate_size": 32,
    "moe_intermediate_size": 32,
    "mlp_hidden_size": 32,
    "hidden_size_per_layer_input": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "o_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "index_topk": 4,
    "rotary_dim": 12,
    "max_position_embeddings": 64,
    "num_hash_layers": 0,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "mamba_n_groups": 1,
    "n_mamba_heads": 1,
    "mamba_d_state": 16,
    "n_groups": 1,
    "ssm_state_size": 16,
    "state_size": 16,
    "time_step_rank": 4,
    "chunk_size": 8,
    "lru_width": HEADS * HEAD_DIM,
    "conv_L_cache": 3,
    "sliding_window": 16,
    "attention_chunk_size": 16,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "laurel_rank": 4,
    "altup_num_inputs": 2,
    "num_kv_shared_layers": 0,
    "use_cache": False,
}
"""A small value for each of the fields by which a model of transformers grows."""


ATTEMPTS: tuple[dict[str, Any], ...] = (
    {},
    {"head_dim": None},
    {"head_dim": 64, "hidden_size": HEADS * 64},
    {"head_dim": 128, "hidden_size": HEADS * 128},
    {"head_dim": 192, "v_head_dim": 128, "hidden_size": HEADS * 128},
    {"num_hidden_layers": None},
    {"moe_intermediate_size": None, "head_dim": 128, "hidden_size": HEADS * 128},
    {"num_experts_per_tok": 1},
)
"""Changes to try until a class takes them; None leaves the field to the class."""


def tiny_config(config_class: type, **changes: Any) -> Any:
    """A config of ``config_class`` with every field that it has made small."""
    plain = config_class()
    parameters = getattr(plain, "rope_parameters", None) or {}
    if parameters.get("rope_type", "default") not in ("default", "proportional", "axial"):
        unscaled = {k: v for k, v in parameters.items() if k not in ("type", "factor")}
        unscaled["rope_type"] = "default"
        changes = {"rope_parameters": unscaled, **changes}
    names = set(vars(plain)) | set(inspect.signature(config_class).parameters)
    names |= set(getattr(config_class, "attribute_map", {}))
    small = {key: value for key, value in SMALL.items() if key in names}
    if "qk_rope_head_dim" in small and changes.get("head_dim", 0) == 0:
        small.pop("head_dim", None)
    for key, value in changes.items():
        if value is None:
            small.pop(key, None)
        elif key in names or key not in SMALL:
            small[key] = value
    return config_class(**small)


def base_model_class(config_class: type, model_type: str) -> type | None:
    """The class that AutoModel gives, or the one in the same file that takes this config."""
    from transformers import PreTrainedModel
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    if config_class in MODEL_MAPPING:
        found = MODEL_MAPPING[config_class]
        return found[0] if isinstance(found, (tuple, list)) else found
    module = sys.modules[config_class.__module__.replace("configuration_", "modeling_")]
    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, PreTrainedModel)
        and value.__module__ == module.__name__
        and getattr(value, "config_class", None) is config_class
        and "For" not in value.__name__
        and not value.__name__.endswith("PreTrainedModel")
    ]
    return own[0] if own else None
