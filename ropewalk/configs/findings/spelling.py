"""Findings about how keys are spelt, and which of two is read."""

from ropewalk.configs.findings.finding import Kind

_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

TWO_SPELLINGS = Kind(
    "RW001",
    "error",
    "Two spellings of one thing disagree",
    "{first_key}={first} and {second_key}={second} disagree; {used} is used here, "
    "and programs differ in which they read",
    "keep one of them, or give both the same value",
    {"model_type": "llama", "rope_theta": 10000.0, "rope_parameters": {"rope_theta": 500000.0}},
)
TWO_TYPES = Kind(
    "RW002",
    "error",
    "type and rope_type disagree",
    "type={type} and rope_type={rope_type} disagree; rope_type is used here, other programs read "
    "type",
    "give both the same value, or drop type",
    {"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2.0}},
)
UNKNOWN_TYPE = Kind(
    "RW003",
    "error",
    "Unknown rope_type",
    "rope_type={rope_type} is not known{hint}; frequencies are given without it",
    "use one of default, linear, dynamic, yarn, longrope, llama3, proportional",
    {"rope_scaling": {"rope_type": "yarm", "factor": 4.0}},
)
IGNORED = Kind(
    "RW004",
    "warning",
    "A key that nothing reads",
    "{key}={value} is not read with rope_type={rope_type}{hint}",
    "remove it, or correct its name",
    {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 32}},
)
CONTRADICTS = Kind(
    "RW005",
    "error",
    "Keys contradict rope_type",
    "rope_type={rope_type} scales nothing, yet {keys} are given; they are ignored",
    "set rope_type to {meant}, or remove them",
    {"rope_scaling": {"rope_type": "default", "factor": 8.0, "low_freq_factor": 1.0}},
)
MISSING_KEY = Kind(
    "RW006",
    "error",
    "A key that the rope_type needs is missing",
    "rope_type={rope_type} needs {key}; without it frequencies are given unscaled",
    "add {key}",
    {"rope_scaling": {"rope_type": "linear"}},
)
ALIAS = Kind(
    "RW007",
    "info",
    "Another name of a rope_type",
    "rope_type={given} is read as {meant}{how}",
    "write {right} where other programs shall read the file",
    {"rope_scaling": {"rope_type": "deepseek_yarn", **{k: _YARN[k] for k in list(_YARN)[1:]}}},
)
FLAT_FOR_NESTED = Kind(
    "RW008",
    "warning",
    "One set of parameters where the class has one for each kind of layer",
    "rope_parameters is flat, but {model_type} keeps one set for each of {labels}; it is read here "
    "as that of {target}",
    "nest it: rope_parameters.{target}",
    {"model_type": "gemma3_text", "rope_parameters": {"rope_type": "linear", "factor": 8.0}},
)
BESIDE_NESTED = Kind(
    "RW009",
    "warning",
    "Flat keys beside nested ones",
    "{key}={value} stands beside parameters for each kind of layer and belongs to none of them",
    "move it into the set it is for",
    {
        "model_type": "gemma3_text",
        "rope_parameters": {"full_attention": {"rope_type": "default"}, "factor": 8.0},
    },
)
DUPLICATE = Kind(
    "RW010",
    "error",
    "A key stands twice in one object",
    "{key} stands {count} times in one object; the last one, {value}, is used here, and programs "
    "differ",
    "keep one of them",
    '{"model_type": "llama", "rope_theta": 10000.0, "rope_theta": 500000.0}',
)
ONLY_NEW_SPELLING = Kind(
    "RW011",
    "warning",
    "Only the newer spelling is there",
    "only rope_parameters says {what}; transformers before 5 does not know it and uses "
    "rope_theta={old_theta} without scaling, silently",
    "write rope_theta and rope_scaling beside it (ropewalk emit --for transformers)",
    {"model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
)
ELSEWHERE = Kind(
    "RW012",
    "warning",
    "A key for theta or the rotated share that this class does not read",
    "{key}={value} is not read by {model_type}; {what} is {used}",
    "{remedy}",
    {"model_type": "llama", "rotary_emb_base": 1000000.0, "max_position_embeddings": 4096},
)
ALIAS_UNREAD = Kind(
    "RW013",
    "error",
    "A name of a rope_type that the class does not know",
    "rope_type={given} is not known to {model_type}, whose code stops when it builds frequencies; "
    "it is read here as {meant}",
    "write {right}",
    {
        "model_type": "llama",
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "deepseek_yarn", **{k: _YARN[k] for k in list(_YARN)[1:]}},
    },
)
KINDS = (
    TWO_SPELLINGS,
    TWO_TYPES,
    UNKNOWN_TYPE,
    IGNORED,
    CONTRADICTS,
    MISSING_KEY,
    ALIAS,
    FLAT_FOR_NESTED,
    BESIDE_NESTED,
    DUPLICATE,
    ONLY_NEW_SPELLING,
    ELSEWHERE,
    ALIAS_UNREAD,
)
