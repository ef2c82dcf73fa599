"""Every kind of finding of an audit, with stable codes; ``example`` is a fault that shows it."""

from __future__ import annotations

from ropewalk.configs.findings.finding import Kind

_BUILD = (
    "build the rotary module anew from the config, in float32, after the model is on its device"
)

ON_META = Kind(
    "RW200",
    "error",
    "Frequencies on the meta device",
    "{name} is on the meta device and holds no numbers",
    "load the weights, or " + _BUILD,
    "a model built on the meta device and never filled",
)
NOT_FINITE = Kind(
    "RW201",
    "error",
    "Frequencies that are not finite",
    "{name} holds {count} of {pairs} values that are nan or infinite",
    _BUILD,
    "inv_freq[3] = nan",
)
GARBAGE = Kind(
    "RW202",
    "error",
    "Frequencies that nobody wrote",
    "{name} begins {live}, the config says {wanted}: memory that was never written, as after "
    "to_empty() without building the frequencies",
    _BUILD,
    "a model built on the meta device and given memory with to_empty",
)
STORED_NARROW = Kind(
    "RW203",
    "error",
    "Frequencies cast to half precision",
    "{name} is stored in {dtype}: frequencies are off by up to {relative}, and the angle at "
    "position {position} by {angle} rad",
    "cast weights without buffers (from_pretrained(dtype=…) does), or put the float32 frequencies "
    "back after .to() or .half()",
    "model.half()",
)
ROUNDED = Kind(
    "RW204",
    "error",
    "Frequencies that went through half precision",
    "{name} is stored in {dtype} but its values are those of the config rounded to {through}: the "
    "angle at position {position} is off by {angle} rad",
    _BUILD,
    "model.to(bfloat16).float()",
)
OTHER_FREQUENCIES = Kind(
    "RW205",
    "error",
    "Frequencies other than the config's",
    "{name} holds {live}, the config says {wanted}: pair {pair} is off by {relative}, its angle at "
    "position {position} by {angle} rad{hint}",
    "set the config before the model is built; if the frequencies were meant, change the config",
    "inv_freq of theta 1e4 where the config says 5e5",
)
OTHER_FACTOR = Kind(
    "RW206",
    "error",
    "An attention factor other than the config's",
    "{name} is {live}, the config says {wanted}",
    "build the rotary module anew from the config",
    "attention_scaling = 1 with YaRN",
)
OTHER_ORIGINAL = Kind(
    "RW207",
    "error",
    "Frequencies kept for later are other ones",
    "{name}, which the module goes back to when lengths change, is off the config's by up to "
    "{relative}",
    "build the rotary module anew from the config",
    "original_inv_freq overwritten",
)
OTHER_FILE = Kind(
    "RW208",
    "error",
    "The loaded model is not what the file says",
    "by the file and by the model's config these layers differ: {reasons}",
    "give the missing keys when loading (config=…), or load from the original checkpoint",
    "a GGUF file whose scaling the loader drops",
)
STILL = Kind(
    "RW210",
    "error",
    "Layers that should rotate and do not",
    "keys are the same at every position, the config says that {pairs} pairs of lanes turn",
    "apply the rotation in these layers, or say in the config that they have none",
    "a layer whose attention skips apply_rotary_pos_emb",
)
TURNS = Kind(
    "RW211",
    "error",
    "Layers that should not rotate and do",
    "keys turn with their position, the config says that these layers do not rotate",
    "leave the rotation out in these layers, or say in the config that they have it",
    "rotation in a NoPE layer",
)
OTHER_PAIRS = Kind(
    "RW212",
    "error",
    "Another pair layout",
    "lanes {live} turn together, the config says {wanted} ({layout})",
    "use the layout that the checkpoint was written for, or permute the rows of q and k",
    "half-split rotation of an interleaved checkpoint",
)
OTHER_LANES = Kind(
    "RW213",
    "error",
    "Other lanes",
    "lanes {live} of {head_dim} turn, the config says {wanted}",
    "compare partial_rotary_factor and rotary_dim with what the code reads",
    "all lanes rotated where partial_rotary_factor is 0.5",
)
OTHER_ANGLES = Kind(
    "RW214",
    "error",
    "Pairs that turn at another speed",
    "the pair of lanes {pair} turns by {live} rad at position {position}, the config says {wanted}"
    "{hint}",
    "compare theta and scaling in the config with the tables that these layers get",
    "tables of another theta",
)
IMPRECISE = Kind(
    "RW215",
    "error",
    "Angles without precision",
    "keys at position {position} are {relative} of their size off an exact rotation, where {dtype} "
    "allows {allowed}{hint}",
    "compute positions times frequencies, and their cos and sin, in float32; cast the results",
    "cos and sin computed in bfloat16",
)
OTHER_TURN = Kind(
    "RW216",
    "error",
    "Rotation the other way round",
    "keys turn by −position · frequency, the config's model type turns by +position · frequency",
    "exchange the sign of sin, in q and k alike",
    "sin of the wrong sign",
)
POSITIONS_IGNORED = Kind(
    "RW217",
    "error",
    "position_ids without effect",
    "keys do not depend on the position_ids that are given, but on where a token stands in the "
    "call: padding, packing and chunks get wrong positions",
    "hand position_ids on to the module that makes cos and sin",
    "arange in place of position_ids",
)
OTHER_SWITCH = Kind(
    "RW218",
    "error",
    "Another switch by length",
    "at {length} tokens keys turn by the frequencies for {live} tokens, the config says those for "
    "{wanted}",
    "choose frequencies by max(position_ids) + 1 > original_max_position_embeddings",
    "the long factors of LongRoPE at any length",
)
PAST_TABLE = Kind(
    "RW219",
    "error",
    "Positions past the end of a table",
    "keys at position {position} turn as those at {alike} should: a table of angles ends, and what "
    "lies beyond it is {what}",
    "compute angles from positions, make the table longer, or raise an error",
    "cos[position.clamp(max=127)]",
)
LAYOUT_OF_FUNCTION = Kind(
    "RW220",
    "error",
    "A rotary function of another layout",
    "{function} turns lanes {live} together, the config says {wanted} ({layout})",
    "use the layout that the checkpoint was written for, or permute the rows of q and k",
    "apply_rotary_pos_emb of Llama in a model of Cohere",
)
FACTOR_NOT_APPLIED = Kind(
    "RW221",
    "error",
    "An attention factor that does not reach q and k",
    "{function} scales by {live}, the config says {wanted}",
    "multiply cos and sin by the attention factor",
    "tables without the factor of YaRN",
)
OTHER_DTYPE = Kind(
    "RW222",
    "warning",
    "A rotation that changes the dtype",
    "{function} takes {given} and returns {live}",
    "cast the result back to the dtype of its input",
    "float32 tables times bfloat16 keys",
)
Q_UNLIKE_K = Kind(
    "RW223",
    "error",
    "q and k turned unlike",
    "{function} turns q and k by rotations that are {relative} apart",
    "rotate q and k by the same tables and positions",
    "the rotation of k with the opposite sign",
)
ANGLES_OF_FUNCTION = Kind(
    "RW224",
    "error",
    "A rotary function with other angles",
    "{function} turns the pair of lanes {pair} by {live} rad at position {position}, the config "
    "says {wanted}",
    "compare theta and scaling in the config with the tables that these layers get",
    "tables of another theta in an encoder",
)
LAYOUT_SEEN = Kind(
    "RW225",
    "info",
    "A layout that only the model shows",
    "lanes pair as {live}; the config's model type is not known to say so, and explain assumes "
    "{layout}",
    "name the layout when converting this model",
    "a model type that explain does not know",
)
FIRST_ROW = Kind(
    "RW226",
    "error",
    "One row's positions for all rows",
    "the keys of all rows of a batch turn by the position_ids of one of them",
    "make cos and sin for each row of position_ids",
    "position_ids[:1] for every row",
)
CACHED_UNLIKE = Kind(
    "RW230",
    "error",
    "Cached decoding is not the full pass",
    "results differ by {difference} of the largest, rounding allows {allowed}{hint}",
    "count positions on from the cache's length; keep position, mask and cache of the same length",
    "positions off by one with a cache",
)
PADDED_UNLIKE = Kind(
    "RW231",
    "error",
    "Left padding changes results",
    "results differ by {difference} of the largest, rounding allows {allowed}",
    "take positions from the attention mask: (mask.cumsum(-1) - 1).clamp(min=0)",
    "positions from arange with learned embeddings",
)
PACKED_UNLIKE = Kind(
    "RW232",
    "error",
    "Packed samples see each other",
    "samples in one row differ from the same samples alone by {difference} of the largest, "
    "rounding allows {allowed}",
    "restart positions at each sample and mask other samples",
    "a mask that ignores where samples begin",
)
NEIGHBOURS = Kind(
    "RW233",
    "error",
    "Rows of a batch change each other",
    "another row beside it changes a row's results by {difference} of the largest, rounding allows "
    "{allowed}{hint}",
    "compute positions, masks and frequencies row by row",
    "a scaling chosen by the longest row of a batch",
)
NOT_RELATIVE = Kind(
    "RW234",
    "error",
    "Results change when all positions move",
    "results at positions {shift} later differ by {difference} of the largest, rounding allows "
    "{allowed}",
    "rotate q and k by the same function of their positions",
    "q rotated by positions that restart",
)
HISTORY = Kind(
    "RW235",
    "error",
    "Results depend on earlier calls",
    "the same call gives results {difference} apart after {after}, rounding allows {allowed}",
    "compute tables from the call's own positions; write to no state in forward",
    "a table of bfloat16 kept from an earlier call",
)
CACHED_BY_LENGTH = Kind(
    "RW236",
    "warning",
    "The scaling depends on the length, and cached keys do not follow",
    "over the length of {length} tokens cached decoding differs from the full pass by {difference} "
    "of the largest: keys cached before were rotated by other frequencies ({scaling})",
    "read the prompt anew when it passes that length, or use a scaling that does not depend on it "
    "(yarn, linear)",
    "rope_type dynamic",
)
NEIGHBOURS_BY_LENGTH = Kind(
    "RW237",
    "warning",
    "The scaling depends on the longest row of a batch",
    "beside a row of more than {length} tokens a short row's results change by {difference} of the "
    "largest ({scaling})",
    "batch short and long rows apart, or use a scaling that does not depend on the length",
    "rope_type longrope",
)
HISTORY_BY_LENGTH = Kind(
    "RW238",
    "warning",
    "The scaling depends on earlier calls",
    "after a call of {longer} tokens one of {length} tokens gives results {difference} apart from "
    "those before ({scaling})",
    "build the model anew between texts, or use a scaling that does not depend on the length",
    "rope_type dynamic",
)
NO_RESULT = Kind(
    "RW239",
    "error",
    "No finite results within the declared length",
    "positions up to {position}, of {declared} that the config declares, give {what}",
    "make tables as long as the config says, or declare what they hold",
    "a table of 64 positions in a model of 128",
)

KINDS: tuple[Kind, ...] = (
    ON_META,
    NOT_FINITE,
    GARBAGE,
    STORED_NARROW,
    ROUNDED,
    OTHER_FREQUENCIES,
    OTHER_FACTOR,
    OTHER_ORIGINAL,
    OTHER_FILE,
    STILL,
    TURNS,
    OTHER_PAIRS,
    OTHER_LANES,
    OTHER_ANGLES,
    IMPRECISE,
    OTHER_TURN,
    POSITIONS_IGNORED,
    OTHER_SWITCH,
    PAST_TABLE,
    LAYOUT_OF_FUNCTION,
    FACTOR_NOT_APPLIED,
    OTHER_DTYPE,
    Q_UNLIKE_K,
    ANGLES_OF_FUNCTION,
    LAYOUT_SEEN,
    FIRST_ROW,
    CACHED_UNLIKE,
    PADDED_UNLIKE,
    PACKED_UNLIKE,
    NEIGHBOURS,
    NOT_RELATIVE,
    HISTORY,
    CACHED_BY_LENGTH,
    NEIGHBOURS_BY_LENGTH,
    HISTORY_BY_LENGTH,
    NO_RESULT,
)
