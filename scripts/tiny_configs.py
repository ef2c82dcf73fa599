"""Small configs of transformers' architectures, by the names of their fields.

What the names do not tell stands in ``HINTS``.
"""

from __future__ import annotations

import re
from typing import Any

OMIT = object()
SIZES: tuple[tuple[str, int], ...] = (
    (r"^(num_)?(n_)?(attention_|decoder_attention_|encoder_attention_|num_)?heads?$", 4),
    (r"num_attention_heads|num_heads|n_head$|attention_heads|encoder_heads|decoder_heads", 4),
    (r"num_key_value_heads|num_kv_heads|n_head_kv|key_value_heads", 2),
    (r"linear_num_(key|value)_heads|mamba_n_heads|mamba_num_heads|n_mamba_heads", 4),
    (r"qk_rope_head_dim|rotary_dim", 16),
    (r"qk_nope_head_dim|v_head_dim|head_dim$|head_size$|kv_channels", 16),
    (r"lora_rank|_rank$", 16),
    (r"index_n_heads|index_num_heads", 2),
    (r"index_topk", 4),
    (r"vocab_size|num_embeddings$", 128),
    (r"num_hidden_layers|num_layers$|n_layers?$|^depth$|encoder_layers$|decoder_layers$", 2),
    (r"num_nextn_predict_layers|mtp_num", 0),
    (r"(num|n)_(local_|routed_)?experts$|moe_num_experts|num_routed_experts", 4),
    (r"experts_per_tok(en)?|moe_k$|moe_topk|num_experts_per|top_k_experts|moe_top_k", 2),
    (r"n_shared_experts|num_shared_experts", 1),
    (r"^n_group$|topk_group", 1),
    (r"intermediate_size|ffn_dim|d_ff$|ffn_hidden|mlp_dim|feed_forward|intermediate_dim", 64),
    (r"^(hidden_size|d_model|n_embd|embed_dim|hidden_dim|dim|width|out_hidden_size)$", 64),
    (r"(hidden_size|embed_dim|hidden_dim|_width|embedding_size|d_model)$", 64),
    (r"max_position_embeddings|max_seq_len|n_positions|max_source_positions", 128),
    (r"sliding_window$|attention_chunk_size|attention_window", 8),
    (r"chunk_size$", 8),
)


GROUPS = tuple(
    (f"{part}num_attention_heads", f"{part}num_key_value_heads")
    for part in ("", "encoder_", "decoder_")
)


def tiny_config(cls: Any, sections: bool = False) -> Any:
    """A small config of ``cls``; with ``sections`` its M-RoPE sections fit the smaller head."""
    default = cls()
    before = default.to_dict()
    values: dict[str, Any] = {}
    subs = getattr(cls, "sub_configs", {}) or {}
    for name in subs:
        sub = getattr(default, name, None)
        if sub is not None:
            values[name] = tiny_config(type(sub), sections)
    for name, value in before.items():
        if name in subs or name.startswith("_"):
            continue
        small = _small(name, value)
        if small is not value:
            values[name] = small
    for heads, groups in GROUPS:
        if before.get(heads) and before.get(heads) == before.get(groups):
            values[groups] = values.get(heads, before[heads])
    values.update(_layers(before))
    if sections:
        values.update(_sections(before, values))
    for pattern, hint in HINTS.items():
        if re.fullmatch(pattern, cls.__name__):
            values.update(hint)
    made = cls(**{k: v for k, v in values.items() if v is not OMIT})
    made._attn_implementation = "eager"
    return made


def _small(name: str, value: Any) -> Any:
    if name == "head_dim" and value is None:
        return 16
    if isinstance(value, bool) or not isinstance(value, (int, list, tuple)):
        return value
    if isinstance(value, int):
        if re.search(r"token_(id|index)|_token$", name):
            return value if value < 100 else 100 + value % 20
        for pattern, size in SIZES:
            if re.search(pattern, name):
                return min(size, value) if value > 0 else value
    return value


def _layers(before: dict[str, Any]) -> dict[str, Any]:
    """Lists with one entry a layer, cut so that each kind of layer stays."""
    names = ("num_hidden_layers", "n_layer", "num_layers", "depth", "num_decoder_layers")
    count = next((n for n in names if isinstance(before.get(n), int)), None)
    if count is None:
        return {}
    full = before[count]
    changed: dict[str, Any] = {}
    kinds = before.get("layer_types")
    if isinstance(kinds, (list, tuple)) and len(kinds) == full:
        keep = sorted({list(kinds).index(kind) for kind in kinds})
        if len(keep) == 1:
            keep = [0, 1]
        changed[count] = len(keep)
        for name, value in before.items():
            if isinstance(value, (list, tuple)) and len(value) == full:
                changed[name] = [value[i] for i in keep]
    return changed


def _sections(before: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Three sections of M-RoPE over the pairs of a head."""
    parameters = before.get("rope_parameters")
    if not isinstance(parameters, dict):
        return {}

    def now(name: str, otherwise: Any) -> Any:
        return values.get(name, before.get(name)) or otherwise

    head_dim = now("head_dim", now("hidden_size", 64) // now("num_attention_heads", 4))
    nested = any(isinstance(value, dict) for value in parameters.values())

    def fitted(one: Any) -> Any:
        if not isinstance(one, dict):
            return one
        pairs = int(head_dim * one.get("partial_rotary_factor", 1.0)) // 2
        count = len(one.get("mrope_section") or (1, 1, 1))
        share = [pairs // count] * count
        share[0] += pairs - sum(share)
        if count == 3:
            share = [pairs - 2 * (3 * pairs // 8), 3 * pairs // 8, 3 * pairs // 8]
        return {**one, "mrope_section": share}

    if nested:
        return {"rope_parameters": {name: fitted(one) for name, one in parameters.items()}}
    return {"rope_parameters": fitted(parameters)}


MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16}
SHORT = {"num_hidden_layers": 2}
HINTS: dict[str, dict[str, Any]] = {
    "BailingHybridConfig": {"num_local_experts": 4, "num_experts": OMIT, "n_group": 1},
    "BambaConfig": {"attn_layer_indices": [1], **MAMBA, "layer_types": OMIT},
    "GraniteMoeHybridConfig": {
        "layer_types": ["mamba", "attention"],
        "position_embedding_type": "rope",
        "layers_block_type": OMIT,
        **MAMBA,
    },
    "PixtralVisionConfig": {"image_size": 64},
    "Sam3ViTConfig": {"image_size": 56, "pretrain_image_size": 56},
    "RecurrentGemmaConfig": {"num_hidden_layers": 3, "layer_types": OMIT, "head_dim": OMIT},
    "Zamba2Config": {
        "layers_block_type": ["mamba", "hybrid", "mamba"],
        "layer_types": OMIT,
        "num_hidden_layers": 3,
        "use_mem_rope": True,
        "n_mamba_heads": 4,
        "mamba_d_state": 16,
        "attention_head_dim": OMIT,
        "hybrid_layer_ids": OMIT,
    },
    "ChameleonConfig": {"vocabulary_map": {"<image>": 3, "IMGIMGA": 4}},
    "ChameleonVQVAEConfig": {"base_channels": 32, "resolution": 32, "num_embeddings": 16},
    "DbrxConfig": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "DeepseekV2Config": {"num_experts_per_tok": 2},
    "DeepseekOcr2TextConfig": {"num_experts_per_tok": 2, "mlp_layer_types": ["dense", "sparse"]},
    "DoryConfig": {
        "num_hidden_layers": 4,
        "n_input_layers": 1,
        "n_output_layers": 1,
        "n_recurrent_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "Dots1Config": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "DiffusionGemmaTextConfig": {
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
    },
    "EsmConfig": {"vocab_size": 128, "position_embedding_type": "rotary", "pad_token_id": 1},
    "DINOv3ViTConfig": {"layerscale_value": 1.0, "image_size": 64},
    "EomtDinov3Config": {"image_size": 64, "num_upscale_blocks": 0, "num_blocks": 1},
    "Gemma3nTextConfig": {
        "num_kv_shared_layers": 0,
        "num_hidden_layers": 5,
        "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
        "activation_sparsity_pattern": [0.0] * 5,
        "intermediate_size": [64] * 5,
        "vocab_size_per_layer_input": 128,
    },
    "GradiumPhononTTSFlowHeadConfig|PocketTTSFlowHeadConfig": {"condition_dim": 64},
    "HunYuanVLTextConfig": {},
    "Lfm2MoeConfig": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "LongcatFlashConfig": {"head_dim": 16, "qk_head_dim": OMIT, "num_layers": 1},
    "Mistral4Config": {"head_dim": OMIT, "qk_head_dim": OMIT},
    "Qwen4ExpTextConfig": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
        "ple_embed_dim": 32,
    },
    "Step3p7TextConfig": {"sliding_window": 8},
    "TimesFm2_5Config": {"patch_length": 8, "context_length": 64, "horizon_length": 8},
    "VJEPA2Config": {"crop_size": 32, "frames_per_clip": 4, "pred_num_attention_heads": 4},
    "VoxtralRealtimeEncoderConfig": {"sliding_window": 8},
    "EsmFold2AtomEncoderConfig": {"hidden_size": 128, "num_attention_heads": 4, "head_dim": 32},
    "Dots3Note.*Config": {"per_layer_config": OMIT, "adapter_input_size": 64},
    "EfficientLoFTRConfig": {"hidden_size": OMIT, "num_attention_heads": 8},
    "Inkling2VisionConfig": {"patch_size": 4, "posemb_grid_size": 8},
    "Kimi_K25VisionConfig": {"patch_size": 4, "pos_emb_height": 8, "pos_emb_width": 8},
    "MiniMaxM3VLVisionConfig": {"image_size": 56},
    "Llama4VisionConfig": {
        "image_size": 56,
        "patch_size": 14,
        "intermediate_size": 64,
        "projector_input_dim": 64,
        "projector_output_dim": 64,
        "vision_output_dim": 64,
        "pixel_shuffle_ratio": 0.5,
    },
    "MoonshineStreamingConfig": {"num_key_value_heads": 4},
    "RoFormerConfig": {"embedding_size": 64},
    "Wav2Vec2BertConfig|Wav2Vec2ConformerConfig": {"position_embeddings_type": "rotary"},
    "SeamlessM4TConfig": {
        "position_embeddings_type": "rotary",
        "feature_projection_input_dim": 160,
    },
    "NemotronConfig": {"head_dim": 16, "num_key_value_heads": 2},
    "IdeficsConfig": {},
}
"""Per config class, by a pattern of its name."""
