"""Findings about what turns keys: layers, lanes, pairs, angles."""

from __future__ import annotations

from ropewalk.configs.findings.finding import Kind

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
KINDS = (
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
)
