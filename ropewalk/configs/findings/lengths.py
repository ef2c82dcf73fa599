"""Findings about lengths: native, scaled and declared."""

from ropewalk.configs.findings.finding import Kind

_YARN = {"rope_type": "yarn", "factor": 4.0}

ORIGINAL_MISSING = Kind(
    "RW030",
    "warning",
    "The original length is missing",
    "rope_type={rope_type} needs original_max_position_embeddings; programs fill in "
    "{declared_key}={declared}, which {effect}",
    "write original_max_position_embeddings: the length that the model was first trained at",
    {"max_position_embeddings": 131072, "rope_scaling": _YARN},
)
FACTOR_AGAINST_LENGTHS = Kind(
    "RW031",
    "warning",
    "Factor and lengths do not fit",
    "factor={factor} × original {native} = {scaled}, but {declared_key}={declared} (ratio "
    "{ratio}); the factor counts: native {native}, scaled {scaled}, declared {declared}",
    "set {declared_key} to {scaled} if the scaling shall serve that length, or factor to the ratio",
    {
        "max_position_embeddings": 40960,
        "rope_scaling": {**_YARN, "original_max_position_embeddings": 32768},
    },
)
TWO_READINGS = Kind(
    "RW032",
    "warning",
    "Two readings of the window",
    "{rope_type} factor={factor} with {declared_key}={declared}: if that is the length before "
    "scaling the window is {scaled}; if it is multiplied already, the model was trained at "
    "{before} "
    "and the window is {declared}",
    "for linear, state original_max_position_embeddings; for dynamic, transformers takes "
    "{declared} as the length before scaling",
    {"max_position_embeddings": 16384, "rope_scaling": {"type": "linear", "factor": 4.0}},
)
SUSPICIOUS = Kind(
    "RW033",
    "warning",
    "A length that looks misspelt",
    "{key}={value} has the digits of {likely} in another order",
    "check it; {likely} is usual",
    {"rope_scaling": {**_YARN, "original_max_position_embeddings": 32786}},
)
ORIGINAL_ABOVE = Kind(
    "RW034",
    "warning",
    "The original length exceeds the declared one",
    "original_max_position_embeddings={original} is above {declared_key}={declared}: a ratio of "
    "{ratio}, so nothing is extended",
    "check both lengths",
    {
        "max_position_embeddings": 4096,
        "rope_scaling": {**_YARN, "original_max_position_embeddings": 8192},
    },
)
LENGTHS_DIFFER = Kind(
    "RW035",
    "warning",
    "Two keys for the length differ",
    "{first_key}={first} and {second_key}={second}; {first_key} is read here as the declared "
    "length",
    "check which of them the model was trained with",
    {"max_position_embeddings": 2048, "n_positions": 8192},
)
KINDS = (
    ORIGINAL_MISSING,
    FACTOR_AGAINST_LENGTHS,
    TWO_READINGS,
    SUSPICIOUS,
    ORIGINAL_ABOVE,
    LENGTHS_DIFFER,
)
