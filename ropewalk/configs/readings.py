"""The known readings of each engine: rules, each with where it is known from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ropewalk.configs.emit_engines import FOURTHS, rotating_fourths
from ropewalk.configs.findings.engines import (
    BY_CAPACITY,
    NEEDS_VERSION,
    READS_OTHERWISE,
    REFUSES,
)
from ropewalk.configs.findings.finding import Kind
from ropewalk.configs.resolved import LayerGroup

Config = dict[str, Any]
BLOCKS = ("rope_parameters", "rope_scaling")


@dataclass(frozen=True)
class Rule:
    """One known reading.

    Args:
        applies: whether it concerns these layers and this block of keys.
        change: the block as the engine understands it; None if it refuses.
        kind: of the finding.
        words: for the message: what, why, remedy.
    """

    applies: Callable[[LayerGroup, Mapping[str, Any]], bool]
    change: Callable[[LayerGroup, Config], Config | None]
    kind: Kind
    words: Mapping[str, str]


def _edited(config: Config, edit: Callable[[Config], Config]) -> Config:
    """The config with ``edit`` applied to its blocks, nested ones each."""
    result = dict(config)
    for name in BLOCKS:
        block = result.get(name)
        if not isinstance(block, Mapping) or not block:
            continue
        if any(isinstance(v, Mapping) for v in block.values()):
            nested = {k: edit(dict(v)) if isinstance(v, Mapping) else v for k, v in block.items()}
            result[name] = nested
        else:
            result[name] = edit(dict(block))
    return result


def _without(*keys: str) -> Callable[[LayerGroup, Config], Config]:
    def change(group: LayerGroup, config: Config) -> Config:
        del group
        return _edited(config, lambda b: {k: v for k, v in b.items() if k not in keys})

    return change


def _refuse(group: LayerGroup, config: Config) -> None:
    del group, config


def _ratio_as_factor(group: LayerGroup, config: Config) -> Config:
    """YaRN's factor as max ÷ original, as transformers before 5 computed it."""
    length, original = config.get("max_position_embeddings"), group.parameters.get(_ORIGINAL)
    if not isinstance(length, int) or not original or length < original:
        return config
    ratio = length / original
    return _edited(config, lambda b: {**b, "factor": ratio} if "factor" in b else b)


def _constant_theta(group: LayerGroup, config: Config) -> Config:
    """One theta for every length, that of factor × the original one."""
    length = next(v.above for v in group.variants)
    factor = float(group.parameters["factor"])
    scale = factor * factor - (factor - 1)
    dim = group.rotary_dim
    theta = float(group.theta or 1.0) * scale ** (dim / (dim - 2))
    plain = _edited(config, lambda _: {"rope_type": "default", "rope_theta": theta})
    return {**plain, "rope_theta": theta, "max_position_embeddings": length}


def _every_fourth(group: LayerGroup, config: Config) -> Config:
    """Rotation in all layers but every fourth, where llama.cpp has that built in."""
    if config.get("model_type") not in FOURTHS:
        return config
    count = int(config.get("num_hidden_layers") or max(group.layers) + 1)
    if set(group.layers) == rotating_fourths(count):
        return config
    return {**config, "no_rope_layers": [int((i + 1) % 4 != 0) for i in range(count)]}


_ORIGINAL = "original_max_position_embeddings"


def _is(*kinds: str) -> Callable[[LayerGroup, Mapping[str, Any]], bool]:
    return lambda group, _: group.rope_type in kinds


def _yarn_with(key: str) -> Callable[[LayerGroup, Mapping[str, Any]], bool]:
    return lambda group, given: group.rope_type == "yarn" and key in given


def _by_length(group: LayerGroup, given: Mapping[str, Any]) -> bool:
    """Whether frequencies follow the length of the text, as dynamic scaling has it."""
    del given
    return group.rope_type == "dynamic" and bool(group.variants)


def _no_dynamic(what: str) -> Rule:
    """Of an engine that has none."""
    remedy = "use rope_type yarn or linear (ropewalk extend --method yarn)"
    return Rule(_by_length, _refuse, REFUSES, {"what": what, "remedy": remedy})


_NO_ATTN_FACTOR = Rule(
    lambda g, _: (
        g.provenance.get("attention_factor") is not None
        and str(g.provenance["attention_factor"].key).endswith("attn_factor")
    ),
    _without("attn_factor"),
    READS_OTHERWISE,
    {
        "what": "the usual attention factor in place of {attention}",
        "why": "it does not know attn_factor",
        "remedy": "write attention_factor={attention}",
    },
)
_NO_ATTENTION_FACTOR = Rule(
    _yarn_with("attention_factor"),
    _without("attention_factor"),
    READS_OTHERWISE,
    {
        "what": "the usual attention factor in place of {attention}",
        "why": "versions until 2026 drop attention_factor",
        "remedy": "use a version that reads it, or write attn_factor where the engine multiplies",
    },
)

RULES: dict[str, tuple[Rule, ...]] = {
    "transformers4": (
        _NO_ATTN_FACTOR,
        Rule(
            _is("llama3"),
            lambda _, c: c,
            NEEDS_VERSION,
            {
                "what": "rope_type=llama3",
                "version": "4.43",
                "older": "older ones want type and factor alone, and stop (meta-llama/llama3#299)",
            },
        ),
        Rule(
            _is("yarn"),
            _ratio_as_factor,
            READS_OTHERWISE,
            {
                "what": "another factor than {factor}",
                "why": "with original_max_position_embeddings it takes "
                "max_position_embeddings ÷ original (huggingface/transformers#38224)",
                "remedy": "set max_position_embeddings to factor × original",
            },
        ),
    ),
    "transformers5": (_NO_ATTN_FACTOR,),
    "vllm": (
        _NO_ATTENTION_FACTOR,
        Rule(
            _by_length,
            _constant_theta,
            READS_OTHERWISE,
            {
                "what": "one theta for every length",
                "why": "its dynamic scaling takes factor² − (factor − 1) at any length "
                "(vllm-project/vllm#3488)",
                "remedy": "use rope_type yarn, or keep texts within the original length",
            },
        ),
        Rule(_is("longrope"), lambda _, c: c, BY_CAPACITY, {"original": "{original}"}),
    ),
    "llama.cpp": (
        _no_dynamic("has no dynamic scaling"),
        Rule(
            lambda *_: True,
            _every_fourth,
            READS_OTHERWISE,
            {
                "what": "every fourth layer without rotation",
                "why": "GGUF has no key for the layers that rotate, and its code has them built in",
                "remedy": "run it with transformers, vLLM or MLX",
            },
        ),
        Rule(
            lambda g, given: g.rope_type == "yarn" and given.get("truncate") is False,
            lambda _, c: _edited(c, lambda b: {**b, "truncate": True}),
            READS_OTHERWISE,
            {
                "what": "YaRN's ramp between whole pairs in place of truncate=false",
                "why": "its code rounds the ends of the ramp",
                "remedy": "run it with transformers or vLLM, whose ramp is fractional",
            },
        ),
        _NO_ATTENTION_FACTOR,
        Rule(_is("longrope"), lambda _, c: c, BY_CAPACITY, {"original": "{original}"}),
    ),
    "mlx": (
        _no_dynamic("has no dynamic scaling (default, linear, llama3, yarn, longrope)"),
        _NO_ATTENTION_FACTOR,
        _NO_ATTN_FACTOR,
        Rule(
            lambda g, _: (
                g.rope_type == "default"
                and g.provenance["rotary_dim"].source == "class default"
                and g.rotary_dim < g.head_dim
            ),
            lambda g, c: {**c, "partial_rotary_factor": 1.0},
            READS_OTHERWISE,
            {
                "what": "a rotation of every lane",
                "why": "it does not know the class's partial_rotary_factor "
                "(ml-explore/mlx-lm#1698)",
                "remedy": "write partial_rotary_factor into the file",
            },
        ),
    ),
}
"""engine → its known readings, each with where it is known from."""
