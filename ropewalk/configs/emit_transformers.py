"""Position keys as transformers 4 and 5 spell them."""

from __future__ import annotations

import math
from typing import Any

from ropewalk.configs.architectures import facts
from ropewalk.configs.parameters import PARTIAL, THETA
from ropewalk.configs.resolved import LayerGroup, Resolved

Config = dict[str, Any]
LISTED, THETA_OF = "layer_rope_theta", "theta"


def rotating(text: Resolved) -> list[LayerGroup]:
    """The groups of layers that rotate."""
    return [group for group in text.layers if group.kind == "rotary"]


def _listed(text: Resolved) -> bool:
    """Whether each layer has a theta of its own."""
    return any(str(group.label).startswith("theta ") for group in rotating(text))


def _sizes(text: Resolved) -> Config:
    """Dimensions, layers and lanes."""
    group = rotating(text)[0]
    count = sum(len(g.layers) for g in text.layers)
    known = facts(text.model_type).row.get("probed")
    sizes: Config = {"model_type": text.model_type} if known else {}
    sizes["num_hidden_layers"] = count
    if group.lane_offset and group.rotary_dim + group.lane_offset == group.head_dim:
        sizes["qk_rope_head_dim"] = group.rotary_dim
        sizes["qk_nope_head_dim"] = group.lane_offset
    else:
        sizes["hidden_size" if "width" in group.details else "head_dim"] = group.head_dim
    wide = next((g for g in rotating(text) if g.pairing == "proportional"), None)
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
    if _listed(text):
        return {}
    labels = {i: g.label for g in rotating(text) for i in g.layers}
    if len(rotating(text)) > 1:
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


def new_keys(text: Resolved) -> Config:
    """rope_parameters, nested where kinds of layers differ."""
    if _listed(text):
        return _theta_list(text)
    sets = {}
    for group in rotating(text):
        own = {**_block(group), THETA: group.theta}
        share = _partial(text, group)
        if share is not None:
            own[PARTIAL] = share
        sets[group.label or ""] = own
    if len(sets) == 1:
        return {"rope_parameters": next(iter(sets.values()))}
    return {"rope_parameters": sets}


def _theta_list(text: Resolved) -> Config:
    """``layer_rope_theta``: a theta for each layer, 0 where a layer does not rotate."""
    groups = rotating(text)
    if not str(groups[0].provenance[THETA_OF].key).startswith(LISTED):
        raise ValueError(
            f"this config has a theta for each layer, which only classes with {LISTED} read, and "
            f"{text.model_type or 'this one'} has it elsewhere; keep its own list"
        )
    blocks = [{**_block(group), PARTIAL: _partial(text, group)} for group in groups]
    if any(block != blocks[0] for block in blocks):
        raise ValueError("a theta for each layer goes with one scaling and one partial factor only")
    thetas = {i: group.theta for group in groups for i in group.layers}
    block = {key: value for key, value in blocks[0].items() if value is not None}
    count = sum(len(group.layers) for group in text.layers)
    return {LISTED: [thetas.get(i, 0) for i in range(count)], "rope_parameters": block}


def for_transformers5(text: Resolved) -> Config:
    """rope_parameters."""
    return {**_sizes(text), **new_keys(text)}


LOCAL_KEYS = {
    "modernbert": ("global_rope_theta", "local_rope_theta"),
    "modernbert-decoder": ("global_rope_theta", "local_rope_theta"),
}
"""How classes with two thetas spell them; others rope_theta and rope_local_base_freq."""


def for_transformers4(text: Resolved) -> Config:
    """rope_theta and rope_scaling; two thetas where the class has keys for them."""
    groups = rotating(text)
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
    if facts(text.model_type).newer:
        raise ValueError(
            f"transformers 4 has no class for model_type {text.model_type}; this needs version 5"
        )
    first, second = LOCAL_KEYS.get(str(text.model_type), (THETA, "rope_local_base_freq"))
    block = _block(wide)
    scaling = None if block == {"rope_type": "default"} else block
    return {first: wide.theta, second: local.theta, "rope_scaling": scaling}


def for_both(text: Resolved) -> Config:
    """Both spellings: transformers 4 reads one, 5 the other, and they agree."""
    new = for_transformers5(text)
    try:
        old = for_transformers4(text)
    except ValueError as error:
        raise ValueError(f"{error}; ask for transformers5 alone") from None
    nested = len(rotating(text)) > 1
    if nested:
        old.pop("rope_scaling", None)
    return {**old, **new}
