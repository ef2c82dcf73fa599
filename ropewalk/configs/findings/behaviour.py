"""Findings about what a valid config does that people do not expect."""

from ropewalk.configs.findings.finding import Kind

_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

SHORT_TEXT = Kind(
    "RW080",
    "info",
    "A scaling that changes short text",
    "{rope_type} acts at every length: between tokens {distance} apart, {changed} of {pairs} pairs "
    "turn by another angle, the most by {radians} rad{factor_words}",
    "use it only where texts are longer than {native}, with the smallest factor that suffices",
    {"head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 131072, "rope_scaling": _YARN},
)
FP32 = Kind(
    "RW081",
    "info",
    "Angles in float32 drift",
    "the model's own code multiplies position and frequency in float32: up to {radians} rad off at "
    "position {position}. Exact angles are not those it was trained with",
    "keep the model's own tables when comparing outputs bit for bit",
    {"model_type": "llama", "rope_theta": 10000.0, "max_position_embeddings": 131072},
)
SWITCH = Kind(
    "RW082",
    "info",
    "Frequencies switch with the length",
    "short_factor up to {original} tokens, long_factor from token {next} on; keys cached "
    "before the "
    "switch do not match those after it (by up to {radians} rad at position {original})",
    "choose one list for a whole cache: by the length it will reach",
    {
        "head_dim": 4,
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0, 1.0],
            "long_factor": [1.0, 4.0],
            "original_max_position_embeddings": 4096,
        },
    },
)
DYNAMIC = Kind(
    "RW083",
    "info",
    "Frequencies follow the length",
    "dynamic: unscaled up to {original} tokens, then theta grows with the length ({at}: {theta}); "
    "keys cached at one length do not match queries at another, and vLLM uses one constant theta",
    "pin one length for a whole cache",
    {"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
)
HARD_CUT = Kind(
    "RW084",
    "info",
    "A hard cut instead of a blend",
    "{low_key}={low} equals {high_key}: no pair is blended, {kept} are kept and {divided} "
    "divided by "
    "{factor}; code that divides by the difference fails",
    "nothing to do",
    {
        "head_dim": 128,
        "rope_theta": 500000.0,
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 16.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
        },
    },
)
ALPHA = Kind(
    "RW085",
    "info",
    "An alpha instead of a factor",
    "alpha={alpha} makes theta {theta} at every length; the type {given} and factor={factor} "
    "play no "
    "part",
    "check that your engine reads alpha",
    {
        "model_type": "hunyuan_v1_dense",
        "head_dim": 128,
        "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
    },
)
ALIBI_HEADS = Kind(
    "RW086",
    "info",
    "ALiBi with a number of heads that is no power of two",
    "{heads} heads: the reference slopes are those of {lower} heads, then every second one of "
    "{upper}; a plain geometric series is another model",
    "do not sort or re-order them",
    {"model_type": "bloom", "num_attention_heads": 12, "hidden_size": 768},
)
TABLE_OFFSET = Kind(
    "RW087",
    "info",
    "A table whose first position is not row 0",
    "position 0 is row {row} of the table{rows}",
    "add {row} to positions; the table has no row for more tokens than {tokens}",
    {"model_type": "opt", "max_position_embeddings": 2048},
)
KINDS = (SHORT_TEXT, FP32, SWITCH, DYNAMIC, HARD_CUT, ALPHA, ALIBI_HEADS, TABLE_OFFSET)
