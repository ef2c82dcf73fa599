"""What a tensor's name says: its layer, and the role that it has in the layer's attention."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LAYER = re.compile(
    r"(?P<prefix>(?:[A-Za-z_]\w*\.)*?)(?:layers|h|blocks|layer)\.(?P<layer>\d+)\.(?P<rest>.+)"
)
_TEXT = re.compile(
    r"(?:base_model\.model\.)?(?:model\.|transformer\.|backbone\.|language_model\.|text_model\."
    r"|llm\.|decoder\.|encoder\.|gpt_neox\.|gpt_neox_japanese\.|nomic_bert\.|roberta\.|gte\.|new\."
    r"|roformer\.|esmc?\.|mtp\.)*"
)
"""What stands before the layers of a text model; towers of images and sounds have other names."""

BLOCKS = (
    "self_attn",
    "attn",
    "attention.self",
    "attention",
    "self_attention",
    "mixer",
    "temporal_block",
    "norm_attn_norm.attn",
)
"""The names of self attention in a layer, longer ones before their beginnings."""

ROLES: dict[str, str] = {
    **dict.fromkeys(("q_proj", "wq", "query"), "q"),
    **dict.fromkeys(("k_proj", "wk", "key"), "k"),
    **dict.fromkeys(("q_norm", "q_layernorm", "query_layernorm"), "q_norm"),
    **dict.fromkeys(("k_norm", "k_layernorm", "key_layernorm"), "k_norm"),
    **dict.fromkeys(
        ("qkv_proj", "query_key_value", "Wqkv", "wqkv", "W_pack", "c_attn"),
        "qkv",
    ),
    "q_b_proj": "q",
    "kv_a_proj_with_mqa": "latent_k",
}
_KEPT = """
v_proj o_proj out_proj dense Wo wv wo value c_proj kv_b_proj kv_a_layernorm q_a_proj
q_a_layernorm sinks attention_sink_bias learnable_sink_param gate_proj g_proj attn_sub_norm
v_norm lambda_q1 lambda_k1 lambda_q2 lambda_k2 subln rotary_emb bias masked_bias embed_positions
inner_attn indexer layer_norm LayerNorm output dense_bias A dt_proj
"""
KEPT = frozenset(_KEPT.split())
"""Parts of attention that no rotated lane passes through."""

_SUSPECT = re.compile(r"(?:^|[._])(?:q|k|qk|qkv|kv|query|key|wq|wk|c_attn|w_pack|wqkv)(?:[._]|$)")
"""What looks like a projection of q or k, outside of self attention as it is known."""
_ELSEWHERE = re.compile(r"(?:cross|encoder_attn|linear_attn|mamba|conv)")
"""What is no self attention with rotations, whatever its parts are called."""


@dataclass(frozen=True)
class Part:
    """A tensor of a layer's attention: ``model.layers.3.self_attn.q_proj.weight`` is layer 3 of
    stack ``model.``, module ``q_proj``, role ``q``, parameter ``weight``. Role ``kept``: no rotated
    lane passes through it; ``unknown``: nobody can say.
    """

    stack: str
    layer: int
    module: str
    role: str
    parameter: str


def part_of(name: str) -> Part | None:
    """What a tensor is in the attention of a text layer; None if it is elsewhere."""
    found = _LAYER.fullmatch(name)
    if found is None or not _TEXT.fullmatch(found["prefix"]):
        return None
    layer, rest = int(found["layer"]), found["rest"]
    block = next((b for b in BLOCKS if rest.startswith(b + ".")), None)
    if block is None:
        suspect = _SUSPECT.search(rest.lower()) and not _ELSEWHERE.match(rest)
        return Part(found["prefix"], layer, rest, "unknown", "") if suspect else None
    module, _, parameter = rest[len(block) + 1 :].partition(".")
    role = "kept" if module in KEPT else ROLES.get(module, "unknown")
    return Part(found["prefix"], layer, module, role, parameter)
