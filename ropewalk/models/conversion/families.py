"""Which models are known, and how each packs q and k.

Names of tensors prove nothing: what a model does between its projections and its scores is a fact
about its class. A type is in here if a tiny model of it was converted and computed the same
(``scripts/convert_sweep.py``), or if the code that its authors published says how it packs.
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
esmc esm eurobert exaone4 exaone_moe falcon_h1 flex_olmo gemma gemma2 gemma3_text gemma3n_text
gemma4_text gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite glm4v_moe_text glm4v_text
glm_moe_dsa glm_ocr_text gpt_oss gptj granite granite_docling_text granite_swa granitemoe
granitemoe_swa granitemoehybrid granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe
hunyuan_vl_text hy_v3 hyperclovax jais2 kolibri1 lara_mini lfm2 lfm2_moe lfm3 llama llama4_text
mellum minicpm3 minimax minimax_m2 minimax_m3_vl_text ministral ministral3 mistral mistral4
mixtral mllama_text_model modernbert-decoder muse_glimmer_text muse_spark_text nanochat nemotron
nemotron3_5_transcribe_word_timestamp olmo olmo2 olmo3 olmo_hybrid olmoe openai_privacy_filter
paddleocr_vl_text phi phimoe pocket_tts qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe
qwen2_vl_text qwen3 qwen3_moe qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text
recurrent_gemma roformer sam3_vit_model seed_oss smollm3 solar_open stablelm starcoder2 step3p5
unlimited_ocr_text vaultgemma youtu
"""
_GATED = "qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp_text"
_PACKED: dict[str | None, str] = {
    "blocks": "dbrx gte jina_embeddings_v3 modernbert nomic_bert phi3 phi4_multimodal",
    "by_head": "gpt_neox gpt_neox_japanese persimmon",
    "quarters": "codegen",
}
_BY_THEIR_OWN_CODE: dict[str | None, str] = {
    None: "internlm minicpm orion xverse Yi deepseek kimi_k2",
    "blocks": "baichuan qwen",
    "by_group": "internlm2",
}


def _packed(rows: Mapping[str | None, str]) -> dict[str, Family]:
    return {name: Family(packing) for packing, names in rows.items() for name in names.split()}


_SEEN: dict[str, Family] = {
    **dict.fromkeys(_SPLIT.split(), PLAIN),
    **dict.fromkeys(_GATED.split(), GATED),
    **_packed(_PACKED),
}
PROVED = frozenset({*_SEEN, "falcon"})
"""Types of which a tiny model was converted and run."""

KNOWN: dict[str, Family] = {**_SEEN, **_packed(_BY_THEIR_OWN_CODE)}
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
