"""Findings about which layers do what."""

from ropewalk.configs.findings.finding import Kind

_TWO = {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}}

LABEL_UNUSED = Kind(
    "RW050",
    "info",
    "Parameters for layers that do not exist",
    "rope_parameters.{label} belongs to no layer; the layers are {kinds}",
    "remove it, or correct layer_types",
    {
        "num_hidden_layers": 2,
        "layer_types": ["full_attention", "full_attention"],
        "rope_parameters": {"full_attention": {"rope_theta": 1e6}, "local": {"rope_theta": 1e4}},
    },
)
NO_LAYER_LIST = Kind(
    "RW051",
    "warning",
    "Parameters for kinds of layers, but no list of layers",
    "{labels} have parameters of their own, but nothing says which layers they are: every layer is "
    "given here as {used}",
    "add layer_types, a kind for each layer",
    {"num_hidden_layers": 12, "head_dim": 64, "rope_parameters": _TWO},
)
LIST_LENGTH = Kind(
    "RW052",
    "error",
    "A list of layers of another length",
    "{key} has {length} entries, num_hidden_layers={layers}",
    "give one entry for each layer",
    {"model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1]},
)
NO_ROPE_LAYERS = Kind(
    "RW053",
    "info",
    "no_rope_layers means the opposite of its name",
    "in no_rope_layers 1 means that a layer rotates: rope is on in layers {on}, off in {off}",
    "nothing to do",
    {"model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]},
)
NO_ROPE_EMPTY = Kind(
    "RW054",
    "warning",
    "no_rope_layers is empty",
    "no_rope_layers is an empty list; programs differ: here the class's rule holds, every "
    "{interval}th layer without rope",
    "write the list in full, 1 for a layer that rotates",
    {"model_type": "smollm3", "num_hidden_layers": 8, "no_rope_layers": []},
)
UNUSED = Kind(
    "RW055",
    "warning",
    "Rope keys, but no rope",
    "{key}={value} is in the file, but {model_type} does not rotate{why}",
    "do not add rope to it: the key is left over",
    {"model_type": "nemotron_h", "rope_theta": 10000, "num_hidden_layers": 2},
)
SOME_LAYERS = Kind(
    "RW056",
    "info",
    "A scaling of some layers only",
    "{rope_type} factor={factor} applies to {label} layers ({on}) only; {others} are not scaled",
    "nothing to do",
    {"model_type": "gemma3_text", "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
)
UNKNOWN_MODEL = Kind(
    "RW057",
    "info",
    "An unknown model_type",
    "model_type={model_type} is not known here{hint}: everything is resolved from its keys, and "
    "every layer is taken to rotate",
    "check layout and layers against the model's code",
    {"model_type": "mystery", "head_dim": 64, "rope_theta": 10000.0},
)
SAME_THETA = Kind(
    "RW058",
    "warning",
    "Local and global layers with one theta",
    "{first} and {second} layers both have theta={theta}; {model_type} has {usual} for {first}",
    "check {key} against the original model",
    {"model_type": "gemma3_text", "rope_theta": 10000.0, "rope_local_base_freq": 10000.0},
)
NOT_STATED = Kind(
    "RW059",
    "warning",
    "Nothing says how position is encoded",
    "no key speaks of position and the class is not known: rotation with theta={theta} is assumed",
    "give the whole config with its model_type",
    {"num_attention_heads": 40},
)
NO_PARAMETERS = Kind(
    "RW060",
    "warning",
    "Layers without parameters",
    "layers of kind {kind} have no rope parameters (given: {labels}); those of {used} are "
    "used here",
    "add them to rope_parameters",
    {
        "num_hidden_layers": 2,
        "layer_types": ["full_attention", "global_attention"],
        "rope_parameters": {"full_attention": {"rope_theta": 1e6}},
    },
)
OWN_PARAMETERS = Kind(
    "RW064",
    "error",
    "Rope parameters for a single layer",
    "{key} is for layer {layer} alone: transformers keeps rope parameters by kind of layer and "
    "stops at it, and it is not applied here",
    "give this layer a kind of its own in layer_types, and that kind its set in rope_parameters",
    {
        "num_hidden_layers": 2,
        "head_dim": 64,
        "rope_theta": 1e4,
        "per_layer_config": {"1": {"rope_theta": 1e6}},
    },
)
WIDTHS = Kind(
    "RW065",
    "warning",
    "Widths by layer that the class has once",
    "{key}={value}: {model_type} in transformers computes frequencies once for {which} and stops "
    "at this; here each layer has those of its own width",
    "run it where widths may differ from layer to layer",
    {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "head_dim": 64,
        "per_layer_config": {"1": {"head_dim": 128}},
    },
)
SKIPPED = Kind(
    "RW066",
    "warning",
    "A layer that may have no attention",
    "{key}={value}: programs that read it leave parts of layer {layer} out, which is shown here as "
    "it would be with them",
    "nothing to do if the attention is left out: such a layer does not rotate",
    {
        "num_hidden_layers": 2,
        "head_dim": 64,
        "rope_theta": 1e4,
        "per_layer_config": {"1": {"skip": ["self_attn"]}},
    },
)
APART = Kind(
    "RW067",
    "error",
    "A list by layer that differs within a kind of layer",
    "{key}={value}, but {first_key}={first}: parameters are kept by kind of layer, and all {label} "
    "layers have those of the first here, as in transformers",
    "give layers that differ kinds of their own in layer_types",
    {
        "model_type": "step3p5",
        "num_hidden_layers": 2,
        "layer_types": ["full_attention", "full_attention"],
        "rope_theta": [5e6, 1e4],
    },
)
STRANGE = Kind(
    "RW068",
    "warning",
    "A kind of layer that the class does not know",
    "layers of kind {kind} have no rope parameters in {model_type}, which knows {labels}; they are "
    "shown without rotation",
    "correct layer_types, or give the kind its set in rope_parameters",
    {
        "model_type": "gemma3_text",
        "num_hidden_layers": 2,
        "layer_types": ["full_attention", "global_attention"],
    },
)
KINDS = (
    LABEL_UNUSED,
    NO_LAYER_LIST,
    LIST_LENGTH,
    NO_ROPE_LAYERS,
    NO_ROPE_EMPTY,
    UNUSED,
    SOME_LAYERS,
    UNKNOWN_MODEL,
    SAME_THETA,
    NOT_STATED,
    NO_PARAMETERS,
    OWN_PARAMETERS,
    WIDTHS,
    SKIPPED,
    APART,
    STRANGE,
)
