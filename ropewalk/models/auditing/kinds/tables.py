"""Findings about the frequencies and factors that modules hold."""

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
KINDS = (
    ON_META,
    NOT_FINITE,
    GARBAGE,
    STORED_NARROW,
    ROUNDED,
    OTHER_FREQUENCIES,
    OTHER_FACTOR,
    OTHER_ORIGINAL,
    OTHER_FILE,
)
