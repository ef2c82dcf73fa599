"""How llama.cpp rotates each architecture of GGUF: nothing in a file says it.

Source: ``llama_model_rope_type`` of llama.cpp (2026). NORM turns neighbours (2i, 2i+1), NEOX and
the multimodal types lanes i and i + n/2. Weights of NORM architectures were permuted on conversion.
"""

from __future__ import annotations

_NONE = """clip gpt2 gptj mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6
rwkv6qwen2 rwkv7 arwkv7 wavtokenizer-dec nemotron_h nemotron_h_moe kimi-linear"""

_NORM = """llama llada llama4 deci baichuan starcoder internlm2 minicpm xverse command-r cohere2
cohere2moe olmo arctic deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 plm chatglm granite
granitemoe granitehybrid chameleon bailingmoe neo-bert smollm3 arcee ernie4_5 ernie4_5-moe mistral3
mistral4 eagle3 llama-embed maincoder glm-dsa glm4 nanbeige"""

_NEOX = """
falcon falcon-h1 grok dbrx bert jina-bert-v3 modern-bert nomic-bert nomic-bert-moe eurobert
stablelm bitnet qwen qwen2 dream qwen2moe qwen3 qwen3moe llada-moe rnd1 olmo2 olmoe phi2 phi3
phimoe plamo plamo2 plamo3 gemma gemma2 gemma3 gemma3n gemma4 gemma-embedding starcoder2 openelm
gptneox codeshell orion nemotron exaone exaone4 exaone-moe minicpm3 bailingmoe2 dots1 hunyuan-
moe jais2 gpt-oss hunyuan-dense lfm2 lfm2moe smallthinker seed_oss grovemoe apertus minimax-m2
minimax-m3 cogvlm pangu-embedded afmoe laguna qwen3next mimo2 step35 glm4moe hunyuan-vl qwen2vl
paddleocr qwen3vl qwen3vlmoe qwen35 qwen35moe"""

SECTIONS_INTERLEAVED = frozenset(["qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3tts"])
"""Architectures whose axes alternate (IMROPE)."""

LAYOUTS: dict[str, str] = {
    **dict.fromkeys(_NONE.split(), "none"),
    **dict.fromkeys(_NORM.split(), "interleaved"),
    **dict.fromkeys(_NEOX.split(), "half"),
}
"""general.architecture → layout, or none."""

MODEL_TYPES: dict[str, str] = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "phi2": "phi",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "qwen2vl": "qwen2_vl_text",
    "qwen3vl": "qwen3_vl_text",
    "qwen3vlmoe": "qwen3_vl_moe_text",
    "qwen35": "qwen3_5_text",
    "qwen35moe": "qwen3_5_moe_text",
    "deepseek2": "deepseek_v3",
    "deepseek32": "deepseek_v32",
    "glm-dsa": "glm_moe_dsa",
    "glm4moe": "glm4_moe",
    "gptneox": "gpt_neox",
    "gpt-oss": "gpt_oss",
    "command-r": "cohere",
    "granitemoe": "granitemoe",
    "modern-bert": "modernbert",
    "nomic-bert": "nomic_bert",
    "seed_oss": "seed_oss",
    "hunyuan-dense": "hunyuan_v1_dense",
    "minimax-m2": "minimax_m2",
    "bailingmoe2": "bailing_moe_v2",
    "falcon-h1": "falcon_h1",
    "lfm2moe": "lfm2_moe",
    "mistral3": "ministral3",
}
"""general.architecture → model_type of transformers, where they differ."""
