"""Which models are known, and how each packs q and k.

Names of tensors prove nothing: what a model does between its projections and its scores is a fact
about its class. A type is in here if a tiny model of it was converted and computed the same
(``scripts/convert_sweep.py``), or if its own code says how it packs (the types below the line).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    """``packing`` of a fused projection; ``gated``: a gate as wide as q follows each query head;
    ``keys``: how many key heads there are, whatever the config states.
    """

    packing: str | None = None
    gated: bool = False
    keys: int | None = None


PLAIN = Family()
GATED = Family(gated=True)

_SPLIT = """
afmoe apertus apertus1p5_text arcee aria_text axk1 bamba bitnet chameleon cohere cohere2
cohere2_moe cosmos3_edge_text csm_depth_decoder_model cwm deepseek_ocr2_text deepseek_v2
deepseek_v3 deepseek_v32 diffllama dinov3_vit doge dots1 emu3_text_model ernie4_5 ernie4_5_moe
esmc eurobert exaone4 exaone_moe falcon_h1 flex_olmo gemma gemma2 gemma3_text gemma3n_text
gemma4_text gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite glm4v_moe_text glm4v_text
glm_image_text glm_moe_dsa glm_ocr_text gpt_oss gptj granite llama mistral mixtral nemotron olmo
olmo2 olmo3 olmoe phi qwen2 qwen2_moe qwen3 qwen3_moe smollm3 stablelm starcoder2
"""
_GATED = "qwen3_next qwen3_5_text qwen3_5_moe_text"
_PACKED = {
    "blocks": "phi3 dbrx modernbert",
    "by_head": "gpt_neox gpt_neox_japanese persimmon",
    "quarters": "codegen",
}
_BY_THEIR_OWN_CODE = {
    None: """internlm minicpm orion xverse Yi deepseek kimi_k2""",
    "blocks": "baichuan qwen",
    "by_group": "internlm2",
}


def _table() -> dict[str, Family]:
    table = dict.fromkeys(_SPLIT.split(), PLAIN)
    table |= dict.fromkeys(_GATED.split(), GATED)
    for rows in (_PACKED, _BY_THEIR_OWN_CODE):
        for packing, names in rows.items():
            table |= dict.fromkeys(names.split(), Family(packing))
    return table


KNOWN: dict[str, Family] = _table()
"""model_type → how it packs q and k."""


def family_of(model_type: str | None, dialect: str, config: Mapping[str, Any]) -> Family:
    """How a model packs q and k.

    Raises:
        ValueError: it is not known.
    """
    if dialect == "params.json":
        return PLAIN
    if model_type == "falcon":
        return _falcon(config)
    if model_type == "chatglm":
        return _chatglm(config)
    family = KNOWN.get(model_type or "")
    if family is None:
        raise ValueError(
            f"how model_type {model_type!r} packs q and k is not known, so a conversion cannot be "
            "proved; known are the types that docs/convert.md lists"
        )
    return family


def _falcon(config: Mapping[str, Any]) -> Family:
    """Groups in the newer decoder; one key head for all, or head by head, in the older."""
    if config.get("new_decoder_architecture"):
        return Family("by_group")
    if config.get("multi_query", True):
        return Family("blocks", keys=1)
    return Family("by_head", keys=config.get("num_attention_heads"))


def _chatglm(config: Mapping[str, Any]) -> Family:
    return Family("blocks" if config.get("multi_query_attention") else "by_head")
