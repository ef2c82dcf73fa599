"""From a config to what each layer does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.configs import dialects, sources
from ropewalk.configs.architectures import Facts, close_to, facts
from ropewalk.configs.axes import axes_of
from ropewalk.configs.bounds import check_bounds
from ropewalk.configs.by_layer import by_layer, of_kinds
from ropewalk.configs.consequences import tell_consequences
from ropewalk.configs.context import context_of, declared_of
from ropewalk.configs.dialects.vllm import laid_over
from ropewalk.configs.findings import Finding, Notes, layers
from ropewalk.configs.findings.finding import ORDER
from ropewalk.configs.kinds import head_size, kind_of, other_group
from ropewalk.configs.parameters import PARTIAL, THETA, Parameters, parameters_of, same_thetas
from ropewalk.configs.per_layer import parts, sizes_of_layers
from ropewalk.configs.plan import Plan, layer_count, plan
from ropewalk.configs.reader import Reader
from ropewalk.configs.resolved import Context, LayerGroup, Resolved
from ropewalk.configs.rotation import rotation
from ropewalk.configs.spelling import tell_spelling
from ropewalk.configs.turned import Rotation
from ropewalk.configs.types import KEYS, ORIGINAL
from ropewalk.configs.value import ASSUMED, Value

NOT_PARTS = frozenset(
    [
        "quantization_config",
        "compression_config",
        "generation_config",
        "attn_config",
        "ffn_config",
        "init_config",
        "rope_config",
        "moe_config",
        "tokenizer_config",
        "task_specific_params",
        "per_layer_config",
    ]
)
DEEPEST = 6
TEXT_PARTS = ("text", "llm", "language", "thinker", "decoder")


def resolve(source: Any, *, overrides: Mapping[str, Any] | None = None) -> Resolved:
    """What a model's config really does to position, layer by layer.

    Args:
        source: a dictionary; JSON as bytes; a path of a config.json, a params.json, a GGUF file or
            a model folder; ``"-"`` for standard input; or a config object of transformers.
        overrides: keys laid over the config, nested ones into nested ones, as the
            ``--hf-overrides`` of vLLM are.

    Returns:
        the groups of layers with their frequencies, each value with its source, and the findings.

    Raises:
        TypeError: source is of another type.
        ValueError: it cannot be read as a config; the message says what and where.
        OSError: it cannot be opened.
    """
    material = sources.load(source)
    config = laid_over(material.config)
    config = config if overrides is None else sources.overlaid(config, overrides)
    check_bounds(config)
    dialect = dialects.of(config, material.form)
    found = _part(config, dialect, material.extra, None, "", 0)
    early = Notes()
    for kind, key, values in material.findings:
        early.add(kind, key, **values)
    every = _ordered([*early.findings, *found.findings])
    return replace(found, findings=every, dialect=dialect.NAME)


def _ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    unique = list(dict.fromkeys(findings))
    return tuple(sorted(unique, key=lambda f: ORDER.index(f.severity)))


def _part(
    config: Mapping[str, Any],
    dialect: Any,
    extra: Mapping[str, Value],
    implied: str | None,
    prefix: str,
    depth: int,
) -> Resolved:
    """One config or part of one; ``implied`` is the model_type that its parent gives it."""
    store = {**dialect.translate(config), **extra}
    stated = store["model_type"].value if "model_type" in store else None
    name = stated if isinstance(stated, str) and stated else implied
    known = facts(name)
    if implied and (not known.known or (known.row.get("parts") and not known.kind)):
        known = facts(implied)
    parts = _nested(config, known, dialect, prefix, depth)
    if _own_layers(config, parts) and known.row.get("parts") and not known.kind:
        known = facts(known.row["parts"].get("text_config"))
    below = [finding for part in parts.values() for finding in part.findings]
    if parts and not _own_layers(config, parts):
        text = next((p for p in parts.values() if p.layers), None)
        context = Context() if text is None else text.context
        return Resolved(name, (), context, _ordered(below), parts)
    notes = Notes(prefix)
    reader = Reader(store, known, notes)
    groups, context = _layers(reader)
    if prefix:
        groups = tuple(_relocated(group, prefix) for group in groups)
    found = _ordered([*notes.findings, *below])
    return Resolved(name, groups, context, found, parts)


def _relocated(group: LayerGroup, prefix: str) -> LayerGroup:
    """The group with key paths from the root of the file."""
    moved = {
        name: Value(v.value, f"file:{prefix}{v.key}") if v.key else v
        for name, v in group.provenance.items()
    }
    return replace(group, provenance=moved)


def _nested(
    config: Mapping[str, Any], known: Facts, dialect: Any, prefix: str, depth: int
) -> dict[str, Resolved]:
    if depth >= DEEPEST:
        return {}
    named = known.row.get("parts", {})
    parts = {}
    for key, value in config.items():
        if not isinstance(value, Mapping) or key in NOT_PARTS:
            continue
        if key in named or (key.endswith("_config") and _speaks(value)):
            parts[key] = _part(value, dialect, {}, named.get(key), f"{prefix}{key}.", depth + 1)
    return parts


def _speaks(value: Mapping[str, Any]) -> bool:
    """Whether a nested object is the config of a model."""
    keys = ("model_type", "hidden_size", "num_hidden_layers", "rope_theta", "rope_parameters")
    return any(key in value for key in (*keys, "rope_scaling", "text_config"))


def _own_layers(config: Mapping[str, Any], parts: Mapping[str, Resolved]) -> bool:
    """Whether a config has layers of its own beside its parts, none of which reads text then."""
    if any(key.startswith(TEXT_PARTS) for key in parts):
        return False
    counts = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    wide = "hidden_size" in config and "num_attention_heads" in config
    return wide or any(key in config for key in counts)


def _layers(reader: Reader) -> tuple[tuple[LayerGroup, ...], Context]:
    kind = kind_of(reader)
    if kind.value != "rotary":
        return other_group(reader, kind)
    sets, listed = by_layer(reader, parameters_of(reader), layer_count(reader).value)
    whole_plan = plan(reader, sets, listed)
    of_kinds(reader, sets, whole_plan)
    declared = declared_of(reader)
    rotations: dict[str, Rotation] = {}
    groups: list[LayerGroup] = []
    sizes = sizes_of_layers(reader, whole_plan.labels)
    for label, own in sets.items():
        for on, local, lane in parts(reader, label, own, whole_plan.on(label), sizes):
            turned = rotation(local, own, lane, declared)
            axes = axes_of(local, own, lane, turned)
            rotations.setdefault(label, turned)
            groups.append(_group(on, label, own, lane, turned, axes, whole_plan, local))
    if off := whole_plan.on(None):
        groups.append(_still(off, whole_plan, reader))
    same_thetas(reader, sets)
    tell_spelling(reader, sets, rotations)
    context = context_of(reader, declared, list(rotations.values()))
    tell_consequences(reader, whole_plan, sets, rotations, context)
    _tell_unknown(reader)
    return _merged(groups), context


def _group(
    on: tuple[int, ...],
    label: str,
    own: Parameters,
    lane: Any,
    turned: Rotation,
    axes: Value | None,
    whole_plan: Plan,
    reader: Reader,
) -> LayerGroup:
    spectrum = turned.spectrum
    details = dict(turned.details)
    beta = own.get("llama_4_scaling_beta")
    if beta is not None and beta.value:
        details["query_scale"] = "1 + llama_4_scaling_beta · ln(1 + ⌊position / original⌋)"
        details["llama_4_scaling_beta"] = beta.value
    provenance = {
        "rope_type": turned.kind,
        "theta": own[THETA],
        "head_dim": lane.head_dim,
        "rotary_dim": lane.rotary_dim,
        "layout": lane.layout,
        "layers": whole_plan.source,
    }
    if turned.attention.value != 1 or turned.attention.source != ASSUMED:
        provenance["attention_factor"] = turned.attention
    if turned.softmax.value != 1:
        provenance["softmax_scale_factor"] = turned.softmax
    if PARTIAL in own:
        provenance[PARTIAL] = own[PARTIAL]
    for name, value in (("factor", turned.factor), ("original", turned.original), ("axes", axes)):
        if value is not None:
            provenance[name] = value
    return LayerGroup(
        layers=on,
        kind="rotary",
        rope_type=_outer_type(turned),
        theta=own[THETA].value,
        head_dim=lane.head_dim.value,
        rotary_dim=lane.rotary_dim.value if spectrum is None else spectrum.rotary_dim,
        layout=lane.layout.value,
        lane_offset=lane.lane_offset,
        pairing="proportional" if lane.proportional else "standard",
        inv_freq=() if spectrum is None else spectrum.matrices[0][0],
        axes=None if axes is None else axes.value,
        attention_factor=turned.attention.value,
        softmax_scale_factor=turned.softmax.value,
        variants=turned.variants,
        label=label or None,
        parameters=_scaling_parameters(own, turned),
        details=details,
        provenance=provenance,
    )


def _scaling_parameters(own: Parameters, turned: Rotation) -> dict[str, Any]:
    """The keys that the rope_type reads, with the values that were used."""
    kept = {
        key: value.value
        for key, value in own.items()
        if key in KEYS[turned.kind.value] and value.value is not None and key != ORIGINAL
    }
    if turned.factor is not None and "factor" in KEYS[turned.kind.value]:
        kept["factor"] = turned.factor.value
    if turned.original is not None and ORIGINAL in KEYS[turned.kind.value]:
        kept[ORIGINAL] = turned.original.value
    if "attn_factor" in kept and turned.kind.value in ("yarn", "longrope"):
        del kept["attn_factor"]
        kept["attention_factor"] = turned.attention.value
    for key in ("mrope_section", "mrope_interleaved", "xdrope_section", "llama_4_scaling_beta"):
        if key in own and own[key].value is not None:
            kept[key] = own[key].value
    return kept


def _outer_type(turned: Rotation) -> str:
    return "dynamic" if turned.kind.value == "alpha" else turned.kind.value


def _still(off: tuple[int, ...], whole_plan: Plan, reader: Reader) -> LayerGroup:
    """Layers that do not rotate."""
    kinds = sorted({str(whole_plan.kinds[i]) for i in off} - {"None"})
    flags = reader.raw("no_rope_layers")
    source = whole_plan.source if flags is None else flags
    head = head_size(reader)
    return LayerGroup(
        layers=off,
        kind="none",
        head_dim=0 if head is None else head.value,
        details={"layer_types": kinds} if kinds else {},
        provenance={"layers": Value(source.value if flags is not None else None, source.source)},
    )


def _merged(groups: list[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Groups with everything alike but the label, in one; in the order of their first layers."""
    merged: list[LayerGroup] = []
    for group in groups:
        bare = replace(group, layers=(), label=None, provenance={}, details=group.details)
        for i, other in enumerate(merged):
            if replace(other, layers=(), label=None, provenance={}) == bare:
                layers_ = tuple(sorted(other.layers + group.layers))
                merged[i] = replace(other, layers=layers_, label=None)
                break
        else:
            merged.append(group)
    return tuple(sorted(merged, key=lambda g: g.layers[:1]))


def _tell_unknown(reader: Reader) -> None:
    known = reader.facts
    if known.model_type and not known.known:
        close = close_to(known.model_type)
        reader.notes.add(
            layers.UNKNOWN_MODEL,
            "model_type",
            model_type=known.model_type,
            hint=f" (a known one is {close})" if close else "",
        )
