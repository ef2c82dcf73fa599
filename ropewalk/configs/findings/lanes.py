"""Findings about head widths, rotated lanes, their pairs and their axes."""

from ropewalk.configs.findings.finding import Kind

PARTIAL_TWICE = Kind(
    "RW040",
    "info",
    "Partial rotation is stated twice",
    "{first_key}={first} and {second_key}={second} both say that {lanes} of {head_dim} lanes "
    "rotate; programs that apply both rotate {wrong}",
    "keep one of them",
    {"head_dim": 128, "rotary_dim": 64, "partial_rotary_factor": 0.5},
)
PARTIAL_DISAGREES = Kind(
    "RW041",
    "error",
    "Two statements of partial rotation disagree",
    "{first_key}={first} means {first_lanes} of {head_dim} lanes, {second_key}={second} means "
    "{second_lanes}; {used} are rotated here",
    "keep the right one",
    {"head_dim": 128, "rotary_dim": 32, "partial_rotary_factor": 0.5},
)
LIST_LENGTH = Kind(
    "RW042",
    "error",
    "A list of another length than there are pairs",
    "{key} has {length} entries; {rotary_dim} rotated lanes are {pairs} pairs",
    "give one divisor for each pair",
    {
        "head_dim": 96,
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0] * 47,
            "long_factor": [2.0] * 48,
            "original_max_position_embeddings": 4096,
        },
    },
)
SECTIONS = Kind(
    "RW043",
    "error",
    "Sections that do not add up",
    "{key}={sections} adds up to {total}; {rotary_dim} rotated lanes are {pairs} pairs",
    "make the sections add up to the number of pairs",
    {"head_dim": 128, "rope_scaling": {"type": "default", "mrope_section": [16, 24, 16]}},
)
HEAD_DIM_ASIDE = Kind(
    "RW044",
    "info",
    "head_dim is not the width that rotates",
    "head_dim={head_dim} is not what rotates here: qk_rope_head_dim={rope_dim} lanes of each query "
    "head of {width} do",
    "read qk_rope_head_dim",
    {"model_type": "glm_moe_dsa", "head_dim": 192, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64},
)
ASSUMED_SIZE = Kind(
    "RW045",
    "warning",
    "A size is nowhere stated",
    "{what} is not in the file and nothing known implies it; {value} is assumed, so the "
    "frequencies are those of that width",
    "give the whole config: head_dim, or hidden_size and num_attention_heads",
    {"rope_theta": 10000.0},
)
PARTIAL_ASIDE = Kind(
    "RW046",
    "info",
    "A partial factor that the rotating head does not use",
    "{key}={value} is not applied to qk_rope_head_dim={rope_dim}: all of its lanes rotate",
    "nothing to do",
    {"head_dim": 128, "qk_rope_head_dim": 64, "partial_rotary_factor": 0.5},
)
PARTIAL_DEFAULT = Kind(
    "RW047",
    "info",
    "A partial factor that only the class knows",
    "{model_type} rotates {lanes} of {head_dim} lanes: its class has partial_rotary_factor={value} "
    "and the file does not say so",
    "write partial_rotary_factor={value} for programs that do not know the class",
    {"model_type": "glm", "head_dim": 128},
)
ASSUMED_LAYOUT = Kind(
    "RW048",
    "info",
    "The pair layout is assumed",
    "nothing says how lanes pair; half is assumed (lane i with i + {pairs})",
    "check against the model's code: interleaved pairs (2i, 2i+1) give gibberish if mixed up",
    {"model_type": "mystery", "head_dim": 64, "rope_theta": 10000.0},
)
TWO_LAYOUTS = Kind(
    "RW049",
    "info",
    "Two layouts in one model",
    "the attention pairs lanes {layout}, its indexer {indexer}",
    "read rope_interleave and indexer_rope_interleave apart",
    {"model_type": "deepseek_v32", "qk_rope_head_dim": 64, "index_head_dim": 128},
)
SCALED_IMAGE = Kind(
    "RW061",
    "warning",
    "A scaling of image axes",
    "rope_type={rope_type} is not applied to the axes of an image; their frequencies are unscaled",
    "remove the scaling from this part",
    {
        "model_type": "qwen2_vl_vision",
        "embed_dim": 256,
        "num_heads": 4,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    },
)
SHARE_UNREAD = Kind(
    "RW062",
    "warning",
    "A rotated share that the class does not read",
    "{key}={value}: without a scaling {model_type} in transformers rotates all {head_dim} lanes; "
    "programs that read the key, as is done here, rotate {lanes}",
    "remove it if the model was trained in transformers; else say which program it is for",
    {"model_type": "llama", "partial_rotary_factor": 0.5},
)
CONVERTED = Kind(
    "RW063",
    "warning",
    "Weights converted to another pair layout",
    "ropewalk_layout={layout}: these weights pair lanes {layout}, where programs that know "
    "{model_type} turn {usual} ones, and would compute something else without a word",
    "run it where the layout can be told, or convert it back with ropewalk convert --to {usual}",
    {"model_type": "llama", "ropewalk_layout": "interleaved"},
)
SECTIONS_UNREAD = Kind(
    "RW075",
    "warning",
    "Sections of axes that the class does not read",
    "{key}={sections}: {model_type} in transformers turns every pair by one position, whatever "
    "the axes; programs that read the key, as is done here, split the pairs",
    "take the model_type of the multimodal model, or remove the sections",
    {
        "model_type": "llama",
        "rope_scaling": {"rope_type": "default", "mrope_section": [16, 24, 24]},
    },
)
ORDER_UNREAD = Kind(
    "RW076",
    "warning",
    "An order of axes that the class does not read",
    "{key}={value} wants axes {said}, but {model_type} in transformers has them {used} whatever "
    "it says, as here; text alone is the same under both, images are not",
    "correct it, since other programs read it",
    {
        "model_type": "qwen3_vl_text",
        "rope_parameters": {
            "rope_type": "default",
            "mrope_section": [24, 20, 20],
            "mrope_interleaved": False,
        },
    },
)
LAYOUT_UNREAD = Kind(
    "RW077",
    "warning",
    "A pair layout that the class does not read",
    "{key}={value} wants {said} pairs{where}, but {model_type} in transformers turns {used} ones "
    "whatever it says, as here",
    "correct it, since other programs read it; or convert the weights (ropewalk convert)",
    {"model_type": "glm_moe_dsa", "qk_rope_head_dim": 64, "rope_interleave": False},
)
KINDS = (
    PARTIAL_TWICE,
    PARTIAL_DISAGREES,
    LIST_LENGTH,
    SECTIONS,
    HEAD_DIM_ASIDE,
    ASSUMED_SIZE,
    PARTIAL_ASIDE,
    PARTIAL_DEFAULT,
    ASSUMED_LAYOUT,
    TWO_LAYOUTS,
    SCALED_IMAGE,
    SHARE_UNREAD,
    CONVERTED,
    SECTIONS_UNREAD,
    ORDER_UNREAD,
    LAYOUT_UNREAD,
)
