"""From what was resolved back to a config: the keys or flags that make a program do it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from ropewalk.configs.architectures import facts
from ropewalk.configs.parameters import PARTIAL, THETA
from ropewalk.configs.resolved import LayerGroup, Resolved
from ropewalk.configs.types import ORIGINAL

Config = dict[str, Any]


def emit(resolved: Resolved, target: str) -> Config:
    """The keys that make ``target`` do what was resolved, for the text part if there are parts.

    Args:
        resolved: from :func:`ropewalk.configs.resolve`.
        target: ``"transformers4"`` (rope_theta, rope_scaling), ``"transformers5"``
            (rope_parameters), ``"transformers"`` (both at once), ``"vllm"`` (``hf_overrides``),
            ``"llama.cpp"`` (flags and GGUF keys) or ``"mlx"``.

    Returns:
        the position keys of a config.json; for vllm and llama.cpp ``flags``, a command line's.

    Raises:
        ValueError: unknown target, or one that cannot do it; the message says what and why.
    """
    if target not in TARGETS:
        raise ValueError(f"target={target!r} is unknown; use one of {', '.join(TARGETS)}")
    if resolved.errors:
        first = resolved.errors[0]
        raise ValueError(f"the config has an error, {first.code}: {first.message}; {first.remedy}")
    text = resolved.text()
    if not any(group.kind == "rotary" for group in text.layers):
        raise ValueError("no layer of this config rotates, so there is nothing to write")
    return TARGETS[target](text)


def _rotating(text: Resolved) -> list[LayerGroup]:
    return [group for group in text.layers if group.kind == "rotary"]


def _main(text: Resolved, target: str) -> LayerGroup:
    """The only group that rotates.

    Raises:
        ValueError: there are several.
    """
    groups = _rotating(text)
    if len(groups) > 1:
        thetas = " and ".join(f"{g.theta:g} ({g.rope_type})" for g in groups)
        raise ValueError(
            f"{target} has one set of rope parameters for all layers, this config {len(groups)}: "
            f"theta {thetas}"
        )
    return groups[0]


def _sizes(text: Resolved) -> Config:
    """Dimensions, layers and lanes."""
    group = _rotating(text)[0]
    count = sum(len(g.layers) for g in text.layers)
    known = facts(text.model_type).row.get("probed")
    sizes: Config = {"model_type": text.model_type} if known else {}
    sizes["num_hidden_layers"] = count
    if group.lane_offset and group.rotary_dim + group.lane_offset == group.head_dim:
        sizes["qk_rope_head_dim"] = group.rotary_dim
        sizes["qk_nope_head_dim"] = group.lane_offset
    else:
        sizes["head_dim"] = group.head_dim
    wide = next((g for g in _rotating(text) if g.pairing == "proportional"), None)
    if wide is not None and wide.head_dim != group.head_dim:
        sizes["global_head_dim"] = wide.head_dim
    if text.context.declared is not None and (text.context.stated or not known):
        sizes["max_position_embeddings"] = text.context.declared
    if group.layout == "interleaved" and not known:
        sizes["rope_interleave"] = True
    sizes.update(_layer_kinds(text, count))
    return sizes


def _layer_kinds(text: Resolved, count: int) -> Config:
    """layer_types, or no_rope_layers, where layers differ."""
    still = {i for g in text.layers if g.kind == "none" for i in g.layers}
    labels = {i: g.label for g in _rotating(text) for i in g.layers}
    if len(_rotating(text)) > 1:
        return {"layer_types": [labels.get(i) or "linear_attention" for i in range(count)]}
    if not still:
        return {}
    source = str(next(g for g in text.layers if g.kind == "none").provenance["layers"].source)
    kinds = [k for g in text.layers if g.kind == "none" for k in g.details.get("layer_types", [])]
    if "layer_types" in source and kinds and "full_attention" not in kinds:
        return {"layer_types": [kinds[0] if i in still else "full_attention" for i in range(count)]}
    return {"no_rope_layers": [0 if i in still else 1 for i in range(count)]}


def _block(group: LayerGroup) -> Config:
    """The rope parameters of a group, theta and partial factor apart."""
    kind = group.rope_type
    block: Config = {"rope_type": kind, **group.parameters}
    if kind == "longrope":
        block.setdefault("attention_factor", group.attention_factor)
    return block


def _partial(text: Resolved, group: LayerGroup) -> float | None:
    """partial_rotary_factor, if not all lanes rotate or the class would take another share."""
    if group.lane_offset:
        return None
    stated = group.provenance.get(PARTIAL)
    if stated is not None and int(group.head_dim * float(stated.value)) in (
        group.rotary_dim,
        group.rotary_dim - 1,
    ):
        return stated.value
    if group.pairing == "proportional":
        return 2 * sum(f != 0 for f in group.inv_freq) / group.head_dim
    share = group.rotary_dim / group.head_dim
    if int(group.head_dim * share) < group.rotary_dim:
        share = math.nextafter(share, 1)
    usual = facts(text.model_type).lacking(group.label or "", PARTIAL)
    return None if share == 1 and usual in (None, 1) else share


def _new(text: Resolved) -> Config:
    """rope_parameters, nested where kinds of layers differ."""
    if any(str(group.label).startswith("theta ") for group in _rotating(text)):
        raise ValueError(
            "this config has a theta for each layer, which only the class of this model reads; "
            "keep its own list"
        )
    sets = {}
    for group in _rotating(text):
        own = {**_block(group), THETA: group.theta}
        share = _partial(text, group)
        if share is not None:
            own[PARTIAL] = share
        sets[group.label or ""] = own
    if len(sets) == 1:
        return {"rope_parameters": next(iter(sets.values()))}
    return {"rope_parameters": sets}


def _transformers5(text: Resolved) -> Config:
    return {**_sizes(text), **_new(text)}


LOCAL_KEYS = {
    "modernbert": ("global_rope_theta", "local_rope_theta"),
    "modernbert-decoder": ("global_rope_theta", "local_rope_theta"),
}
"""How classes with two thetas spell them; others rope_theta and rope_local_base_freq."""


def _transformers4(text: Resolved) -> Config:
    """rope_theta and rope_scaling; two thetas where the class has keys for them."""
    groups = _rotating(text)
    sizes = _sizes(text)
    if len(groups) > 1:
        return {**sizes, **_two_thetas(text, groups)}
    group = groups[0]
    if group.rope_type == "proportional":
        raise ValueError("transformers 4 has no rope_type proportional; it needs version 5")
    goes = facts(text.model_type).goes_to
    theta = next((k for k in goes if "theta" in k or "base" in k), THETA)
    found: Config = {**sizes, theta: group.theta}
    block = _block(group)
    found["rope_scaling"] = None if block == {"rope_type": "default"} else block
    share = _partial(text, group)
    if share is not None:
        found["rotary_pct" if "rotary_pct" in goes and theta != THETA else PARTIAL] = share
    return found


def _two_thetas(text: Resolved, groups: list[LayerGroup]) -> Config:
    named = {group.label: group for group in groups}
    wide, local = named.get("full_attention"), named.get("sliding_attention")
    if len(named) != 2 or wide is None or local is None or local.rope_type != "default":
        raise ValueError(
            "transformers 4 knows two sets of rope parameters only as full_attention and an "
            "unscaled sliding_attention; this needs version 5"
        )
    if wide.rope_type == "proportional" or _partial(text, wide) != _partial(text, local):
        raise ValueError("transformers 4 has one partial factor for all layers; this needs 5")
    first, second = LOCAL_KEYS.get(str(text.model_type), (THETA, "rope_local_base_freq"))
    block = _block(wide)
    scaling = None if block == {"rope_type": "default"} else block
    return {first: wide.theta, second: local.theta, "rope_scaling": scaling}


def _both(text: Resolved) -> Config:
    """Both spellings: transformers 4 reads one, 5 the other, and they agree."""
    new = _transformers5(text)
    try:
        old = _transformers4(text)
    except ValueError as error:
        raise ValueError(f"{error}; ask for transformers5 alone") from None
    nested = len(_rotating(text)) > 1
    if nested:
        old.pop("rope_scaling", None)
    return {**old, **new}


def _vllm(text: Resolved) -> Config:
    """hf_overrides, as an object and as a flag."""
    overrides = _new(text)
    longest = text.context.scaled or text.context.declared
    flags = ["--hf-overrides", json.dumps(overrides)]
    if any(g.rope_type == "dynamic" and g.variants for g in _rotating(text)):
        raise ValueError(
            "vLLM's dynamic scaling is one constant theta at every length; use yarn or linear"
        )
    if longest is not None:
        flags += ["--max-model-len", str(longest)]
    return {"hf_overrides": overrides, "flags": flags}


def _llama_cpp(text: Resolved) -> Config:
    """Flags of the command line, and the metadata keys of a GGUF file."""
    group = _main(text, "llama.cpp")
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


def _mlx(text: Resolved) -> Config:
    """As transformers 4, without what mlx-lm does not know."""
    group = _main(text, "mlx")
    if group.rope_type not in ("default", "linear", "llama3", "yarn", "longrope"):
        raise ValueError(f"mlx has no scaling of rope_type {group.rope_type}")
    if group.rope_type == "yarn" and "attention_factor" in group.parameters:
        raise ValueError("mlx does not read attention_factor; the usual one cannot be changed")
    return _transformers4(text)


TARGETS: dict[str, Callable[[Resolved], Config]] = {
    "transformers": _both,
    "transformers4": _transformers4,
    "transformers5": _transformers5,
    "vllm": _vllm,
    "llama.cpp": _llama_cpp,
    "mlx": _mlx,
}
"""target → what is written for it."""


POSITION_KEYS = frozenset(
    (
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "partial_rotary_factor",
        "rotary_dim",
        "rotary_pct",
        "rotary_emb_base",
        "rope_local_base_freq",
        "local_rope_theta",
        "global_rope_theta",
        "rope_ratio",
    )
)
"""Keys of a file that written ones replace."""


def whole(config: dict[str, Any], written: Config) -> Config:
    """``config`` with its position keys replaced by the written ones, in its text part if any.

    Raises:
        ValueError: what was written is not a config.
    """
    if "flags" in written:
        raise ValueError("flags are no config; --whole goes with transformers and mlx")
    if "text_config" in config and isinstance(config["text_config"], dict):
        return {**config, "text_config": whole(config["text_config"], written)}
    kept = {key: value for key, value in config.items() if key not in POSITION_KEYS}
    return {**kept, **{k: v for k, v in written.items() if k in POSITION_KEYS or k not in kept}}
