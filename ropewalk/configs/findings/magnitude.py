"""Findings about factors on cos and sin, and on the softmax scale."""

from ropewalk.configs.findings.finding import Kind

_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

MULTIPLIER = Kind(
    "RW070",
    "warning",
    "attn_factor multiplies, attention_factor is final",
    "attn_factor={value} multiplies the default {usual}, which gives {result} here and in vLLM and "
    "llama.cpp; transformers does not read it and uses {usual}",
    "write attention_factor={result}",
    {"rope_scaling": {**_YARN, "attn_factor": 0.8782488562869419}},
)
BOTH = Kind(
    "RW071",
    "error",
    "attention_factor and attn_factor disagree",
    "attention_factor={final} is final, attn_factor={value} times the default {usual} is {result}; "
    "{final} is used here",
    "keep attention_factor",
    {"rope_scaling": {**_YARN, "attention_factor": 1.0, "attn_factor": 1.0}},
)
OVERRIDES = Kind(
    "RW072",
    "info",
    "An attention_factor other than the usual",
    "attention_factor={value} replaces the usual {usual}; programs that drop the key are wrong by "
    "{percent} %",
    "nothing to do; check that your engine reads it",
    {"rope_scaling": {**_YARN, "attention_factor": 1.0}},
)
SOFTMAX = Kind(
    "RW073",
    "info",
    "The softmax scale changes too",
    "mscale_all_dim={value} with factor={factor}: the softmax scale is multiplied with {result}, "
    "beside the rotation",
    "apply it once: to the scale, not to cos and sin",
    {
        "model_type": "deepseek_v3",
        "rope_scaling": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    },
)
MSCALE_ALONE = Kind(
    "RW074",
    "warning",
    "One of mscale and mscale_all_dim",
    "{key}={value} stands alone; both are needed for their ratio, so cos and sin are multiplied "
    "with the usual {usual}",
    "give both, or attention_factor",
    {"rope_scaling": {**_YARN, "mscale": 0.707}},
)
KINDS = (MULTIPLIER, BOTH, OVERRIDES, SOFTMAX, MSCALE_ALONE)
