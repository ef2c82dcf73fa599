"""Flags and keys of engines other than transformers, or why they cannot do it."""

from __future__ import annotations

import json

from ropewalk.configs.emit_transformers import (
    Config,
    for_transformers4,
    new_keys,
    rotating,
)
from ropewalk.configs.resolved import LayerGroup, Resolved
from ropewalk.configs.types import ORIGINAL


def _main(text: Resolved, target: str) -> LayerGroup:
    """The only group that rotates.

    Raises:
        ValueError: there are several.
    """
    groups = rotating(text)
    if len(groups) > 1:
        thetas = " and ".join(f"{g.theta:g} ({g.rope_type})" for g in groups)
        raise ValueError(
            f"{target} has one set of rope parameters for all layers, this config {len(groups)}: "
            f"theta {thetas}"
        )
    return groups[0]


def for_vllm(text: Resolved) -> Config:
    """hf_overrides, as an object and as a flag."""
    overrides = new_keys(text)
    longest = text.context.scaled or text.context.declared
    flags = ["--hf-overrides", json.dumps(overrides)]
    if any(g.rope_type == "dynamic" and g.variants for g in rotating(text)):
        raise ValueError(
            "vLLM's dynamic scaling is one constant theta at every length; use yarn or linear"
        )
    if longest is not None:
        flags += ["--max-model-len", str(longest)]
    return {"hf_overrides": overrides, "flags": flags}


FOURTHS = frozenset(["smollm3", "llama4_text"])
"""Types of which llama.cpp has it built in that every fourth layer stands still."""


def rotating_fourths(count: int) -> set[int]:
    """The layers of ``count`` that rotate where every fourth does not."""
    return {i for i in range(count) if (i + 1) % 4}


def for_llama_cpp(text: Resolved) -> Config:
    """Flags of the command line, and the metadata keys of a GGUF file."""
    group = _main(text, "llama.cpp")
    count = sum(len(own.layers) for own in text.layers)
    turned = {i for own in text.layers if own.kind == "rotary" for i in own.layers}
    if text.model_type in FOURTHS and turned != rotating_fourths(count):
        raise ValueError(
            f"llama.cpp rotates all layers of {text.model_type} but every fourth, and GGUF has no "
            "key for others; run it with transformers, vLLM or MLX"
        )
    kind, given = group.rope_type, group.parameters
    if kind not in ("default", "linear", "yarn", "longrope", "llama3"):
        raise ValueError(f"llama.cpp has no scaling of rope_type {kind}")
    flags = ["--rope-freq-base", f"{group.theta:g}"]
    keys: Config = {"rope.freq_base": group.theta, "rope.dimension_count": group.rotary_dim}
    if text.context.declared is not None:
        keys["context_length"] = text.context.declared
    if kind in ("linear", "yarn"):
        factor = float(given["factor"])
        flags += ["--rope-scaling", str(kind), "--rope-freq-scale", f"{1 / factor:.10g}"]
        keys |= {"rope.scaling.type": kind, "rope.scaling.factor": factor}
    if kind == "yarn":
        keys["rope.scaling.original_context_length"] = given[ORIGINAL]
        flags += ["--yarn-orig-ctx", str(given[ORIGINAL])]
        flags += _yarn_flags(group, keys)
    if kind in ("llama3", "longrope"):
        flags = []
        keys["tensors"] = _divisors(group)
    return {"flags": flags, "gguf": keys}


def _yarn_flags(group: LayerGroup, keys: Config) -> list[str]:
    """attn_factor multiplies llama.cpp's own 1 + 0.1 ln s; betas."""
    from ropewalk.spectra.yarn import mscale

    given, flags = group.parameters, []
    usual = mscale(float(given["factor"]))
    times = group.attention_factor / usual
    if abs(times - 1) > 1e-9:
        flags += ["--yarn-attn-factor", f"{times:.10g}"]
        keys["rope.scaling.attn_factor"] = times
    for name in ("beta_fast", "beta_slow"):
        if name in given:
            flags += [f"--yarn-{name.replace('_', '-')}", f"{float(given[name]):g}"]
            keys[f"rope.scaling.yarn_{name}"] = float(given[name])
    if given.get("truncate") is False:
        raise ValueError("llama.cpp rounds the ends of YaRN's ramp; truncate=false needs another")
    return flags


def _divisors(group: LayerGroup) -> Config:
    """Tensors of per-pair divisors, which have no flag."""
    from ropewalk.spectra.geometric import powers

    plain = powers(float(group.theta or 1.0), len(group.inv_freq), group.rotary_dim)
    if group.rope_type == "llama3":
        return {"rope_freqs.weight": [a / b for a, b in zip(plain, group.inv_freq, strict=True)]}
    return {
        "rope_factors_short.weight": list(group.parameters["short_factor"]),
        "rope_factors_long.weight": list(group.parameters["long_factor"]),
    }


def for_mlx(text: Resolved) -> Config:
    """As transformers 4, without what mlx-lm does not know."""
    group = _main(text, "mlx")
    if group.rope_type not in ("default", "linear", "llama3", "yarn", "longrope"):
        raise ValueError(f"mlx has no scaling of rope_type {group.rope_type}")
    if group.rope_type == "yarn" and "attention_factor" in group.parameters:
        raise ValueError("mlx does not read attention_factor; the usual one cannot be changed")
    return for_transformers4(text)
