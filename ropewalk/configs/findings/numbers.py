"""Findings about single values: wrong types, impossible numbers."""

from ropewalk.configs.findings.finding import Kind

TEXT = Kind(
    "RW020",
    "error",
    "Text where a number belongs",
    '{key} is the text "{value}" and must be a number; it is read here as {read}',
    "write the number without quotes",
    {"rope_scaling": {"rope_type": "linear", "factor": "2"}},
)
WRONG_TYPE = Kind(
    "RW021",
    "error",
    "A value of another type",
    "{key}={value} must be {expected}; it is left out here",
    "correct the value",
    {"rope_scaling": ["linear", 2.0]},
)
NOT_FINITE = Kind(
    "RW022",
    "error",
    "Infinite, or not a number",
    "{key} is {value}; it must be finite, and is left out here",
    "correct the value",
    {"rope_theta": float("inf")},
)
BAD_THETA = Kind(
    "RW023",
    "error",
    "Theta that cannot be",
    "{key}={value} gives no frequencies (theta must be above 0); {used} is used here",
    "write the theta that the model was trained with",
    {"model_type": "modernbert", "global_rope_theta": 10000.0, "local_rope_theta": -1},
)
NULL_THETA = Kind(
    "RW024",
    "error",
    "Theta is null",
    "{key} is null; some programs fail on it, others take the class default {used}, which is used "
    "here",
    "write the theta that the model was trained with",
    {"model_type": "llama", "rope_theta": None},
)
FACTOR_BELOW_ONE = Kind(
    "RW025",
    "error",
    "A factor below 1",
    "{key}={value} is below 1: frequencies are divided by it, so positions run {faster} times "
    "faster and the window shrinks",
    "write the inverse, {inverse}, if the window shall grow",
    {"rope_scaling": {"rope_type": "linear", "factor": 0.5}},
)
OUT_OF_RANGE = Kind(
    "RW026",
    "error",
    "A size that cannot be",
    "{key}={value} must be {expected}; it is left out here",
    "correct the value",
    {"model_type": "llama", "num_hidden_layers": -3},
)
ODD = Kind(
    "RW027",
    "error",
    "An odd number of rotated lanes",
    "{key} gives {value} rotated lanes, and lanes turn in pairs; {used} are rotated here",
    "choose an even number",
    {"hidden_size": 66, "num_attention_heads": 2, "rope_theta": 10000.0},
)
ODD_SPAN = Kind(
    "RW029",
    "warning",
    "A partial factor that gives an odd number of lanes",
    "{key} gives {value} lanes; transformers rotates {used}, with exponents over {value}",
    "choose a share that gives an even number",
    {"model_type": "glm4_moe", "hidden_size": 4096, "num_attention_heads": 96},
)
UNCOMPUTABLE = Kind(
    "RW028",
    "error",
    "Frequencies that cannot be computed",
    "no frequencies with these parameters: {reason}",
    "correct the parameters",
    {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
                      "high_freq_factor": 1.0, "original_max_position_embeddings": 8192}},
)  # fmt: skip
KINDS = (
    TEXT,
    WRONG_TYPE,
    NOT_FINITE,
    BAD_THETA,
    NULL_THETA,
    FACTOR_BELOW_ONE,
    OUT_OF_RANGE,
    ODD,
    ODD_SPAN,
    UNCOMPUTABLE,
)
