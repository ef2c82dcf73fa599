"""Findings about what a program makes of a file, and about two configs side by side."""

from ropewalk.configs.findings.finding import Kind

_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

READS_OTHERWISE = Kind(
    "RW100",
    "warning",
    "A program reads the file otherwise",
    "{engine} reads {what}: {why}",
    "{remedy}",
    {"model_type": "llama", "rope_scaling": {**_YARN, "attention_factor": 1.0}},
)
REFUSES = Kind(
    "RW101",
    "error",
    "A program cannot do it",
    "{engine} {what}",
    "{remedy}",
    {
        "model_type": "llama",
        "max_position_embeddings": 4096,
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
    },
)
BY_CAPACITY = Kind(
    "RW102",
    "warning",
    "A program chooses frequencies by its capacity",
    "{engine} takes the long frequencies whenever its context is above {original} tokens, also for "
    "short prompts",
    "run short prompts with a context of at most {original}",
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
NEEDS_VERSION = Kind(
    "RW103",
    "info",
    "A program must be new enough",
    "{engine} knows {what} from version {version} on: {older}",
    "use version {version} or newer; the file need not change",
    {
        "model_type": "llama",
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
)
KINDS = (READS_OTHERWISE, REFUSES, BY_CAPACITY, NEEDS_VERSION)
EXAMPLE_ENGINE = {
    "RW100": "vllm",
    "RW101": "llama.cpp",
    "RW102": "llama.cpp",
    "RW103": "transformers4",
}
"""The engine that shows each of them."""
