"""Every tensor of a checkpoint against its config: which change, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ropewalk.configs import LayerGroup, Resolved
from ropewalk.configs.value import ASSUMED
from ropewalk.models.conversion.families import Family, family_of
from ropewalk.models.conversion.names import Part, part_of
from ropewalk.models.conversion.record import layouts
from ropewalk.models.conversion.rules import Heads, block_rows, turn_of
from ropewalk.models.conversion.sizes import key_heads, query_heads
from ropewalk.models.conversion.turns import Turn

_SHARED = ("num_kv_shared_layers", "num_kv_shared_layer")


@dataclass(frozen=True)
class Layer:
    """The attention of one layer: its heads, and the tensors that change, by role and parameter."""

    name: str
    group: LayerGroup
    heads: Heads
    turned: dict[str, tuple[Part, Turn]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Tensor → how it changes, and the same by layer."""

    layout: str
    turns: dict[str, Turn]
    layers: tuple[Layer, ...]
    still: int


def plan(
    shapes: Mapping[str, tuple[int, ...]],
    config: Mapping[str, Any],
    resolved: Resolved,
    given: str | None,
    *,
    complete: bool,
) -> Plan:
    """What a conversion changes.

    Args:
        shapes: tensor → shape.
        config: that of the text part.
        resolved: of the whole config.
        given: the layout that the caller knows the weights to have; None for what the config says.
        complete: whether every layer must be there (false for adapters).

    Raises:
        ValueError: something is not known, or does not fit; the message names the tensor.
    """
    if resolved.errors:
        first = resolved.errors[0]
        raise ValueError(f"the config has an error, {first.code}: {first.message}; {first.remedy}")
    text = resolved.text()
    groups = {i: group for group in text.layers for i in group.layers}
    rotary = [group for group in text.layers if group.kind == "rotary"]
    if not rotary:
        raise ValueError("no layer of this model rotates, so lanes have no layout")
    family = family_of(text.model_type, resolved.dialect, config)
    layout = given or _layout(resolved, rotary)
    found = _by_layer(shapes, groups, rotary)
    layers = tuple(
        _layer(stack, index, group, parts, shapes, config, text.model_type, family)
        for (stack, index), (group, parts) in found.items()
    )
    if complete:
        _require_all(layers, found, groups, config)
    turns = {name: turn for layer in layers for name, (_, turn) in layer.turned.items()}
    if not turns:
        raise ValueError("no tensor of q or k is in there that this conversion would change")
    still = sum(1 for group in groups.values() if group.kind != "rotary")
    return Plan(layout, turns, layers, still)


def _layout(resolved: Resolved, rotary: list[LayerGroup]) -> str:
    found = layouts(resolved)
    if len(found) != 1 or None in found:
        raise ValueError("the layers of this model have several layouts; that is not converted")
    if any(group.provenance["layout"].source == ASSUMED for group in rotary):
        raise ValueError("nothing says how these weights pair lanes; say it with --from")
    return str(found.pop())


Found = dict[tuple[str, int], tuple[LayerGroup, dict[str, Part]]]


def _by_layer(
    names: Iterable[str], groups: Mapping[int, LayerGroup], rotary: list[LayerGroup]
) -> Found:
    """(stack, layer) → its group and parts, of the layers that rotate."""
    found: Found = {}
    for name in names:
        part = part_of(name)
        if part is None:
            continue
        group = groups.get(part.layer)
        if group is None or "mtp." in part.stack:
            if len(rotary) > 1 or any(g.kind != "rotary" for g in groups.values()):
                raise ValueError(f"tensor {name} is of a layer that the config does not describe")
            group = rotary[0]
        if group.kind != "rotary":
            continue
        found.setdefault((part.stack, part.layer), (group, {}))[1][name] = part
    stacks: dict[int, str] = {}
    for (stack, layer), (_, parts) in found.items():
        if "mtp." in stack or all(part.role == "kept" for part in parts.values()):
            continue
        if stacks.setdefault(layer, stack) != stack:
            raise ValueError(
                f"layer {layer} is in {stacks[layer]!r} and in {stack!r}; which of them the config "
                "describes is not known"
            )
    return found


def _layer(
    stack: str,
    index: int,
    group: LayerGroup,
    parts: Mapping[str, Part],
    shapes: Mapping[str, tuple[int, ...]],
    config: Mapping[str, Any],
    model_type: str | None,
    family: Family,
) -> Layer:
    if "halves" in group.details:
        raise ValueError(f"layer {index} rotates each half of a head by itself; not converted")
    latent = config.get("kv_lora_rank")
    heads = Heads(
        group.head_dim,
        0 if group.pairing == "proportional" else group.lane_offset,
        2 * len(group.inv_freq),
        query_heads(model_type, config),
        family.keys or key_heads(config),
        latent if type(latent) is int else None,
        block_rows(config),
    )
    rows = {p.module: shapes[name][0] for name, p in parts.items() if _is_matrix(p, shapes[name])}
    layer = Layer(f"{stack}layers.{index}", group, heads)
    for name, part in parts.items():
        if part.role == "unknown":
            raise ValueError(
                f"tensor {name}: what {part.module} does to q and k is not known, so nothing can "
                "be proved"
            )
        try:
            turn = turn_of(part, shapes[name], heads, family, rows.get(part.module))
        except ValueError as error:
            raise ValueError(f"tensor {name}: {error}") from None
        if turn is not None:
            layer.turned[name] = part, turn
    return layer


def _is_matrix(part: Part, shape: tuple[int, ...]) -> bool:
    return part.parameter in ("weight", "base_layer.weight") and len(shape) == 2


def _require_all(
    layers: tuple[Layer, ...],
    found: Found,
    groups: Mapping[int, LayerGroup],
    config: Mapping[str, Any],
) -> None:
    """Every layer that rotates has its q and its k, and nothing else takes k's place."""
    shared = any(config.get(key) for key in _SHARED)
    for layer, (_, parts) in zip(layers, found.values(), strict=True):
        roles = {part.role for part in parts.values()}
        keys = bool(roles & {"k", "qkv", "latent_k"})
        modules = {part.module for part in parts.values()}
        values = bool(modules & {"v_proj", "wv", "value", "kv_b_proj"}) or "qkv" in roles
        queries = bool(roles & {"q", "qkv"})
        if not queries or not (keys or shared) or (keys and not values):
            lacking = "queries" if not queries else "keys" if not keys else "values of their own"
            raise ValueError(f"{layer.name} rotates by the config, and has no {lacking} by name")
    here = {index for _, index in found}
    missing = [i for i, group in groups.items() if group.kind == "rotary" and i not in here]
    if missing:
        raise ValueError(
            f"layer {missing[0]} rotates by the config, and no attention by a known name is there"
        )
