"""Which layers rotate, and with which set of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ropewalk.configs.findings import layers as findings
from ropewalk.configs.parameters import ALL, Parameters
from ropewalk.configs.reader import LIMITS, WIDEST, Reader
from ropewalk.configs.resolved import ranges
from ropewalk.configs.value import ASSUMED, CLASS_DEFAULT, Value

NOT_ATTENTION = frozenset(
    [
        "linear_attention",
        "conv",
        "short_conv",
        "mamba",
        "mamba2",
        "recurrent",
        "rglru",
        "ssm",
        "moe",
        "mlp",
        "linear",
        "cross_attention",
        "gated_delta_net",
        "lightning_attention",
    ]
)
"""Kinds of layers that have no rotation, as they have no attention over positions."""

DEFAULT_INTERVAL = 4


@dataclass(frozen=True)
class Plan:
    """For each layer its kind, and the label of its parameters; None for no rotation."""

    kinds: tuple[str | None, ...]
    labels: tuple[str | None, ...]
    source: Value

    def on(self, label: str | None) -> tuple[int, ...]:
        """The layers with this label."""
        return tuple(i for i, own in enumerate(self.labels) if own == label)


def plan(
    reader: Reader, sets: Mapping[str, Parameters], listed: Sequence[str | None] | None = None
) -> Plan:
    """The plan of all layers; ``listed`` are labels that the file gives layer by layer."""
    count = layer_count(reader)
    kinds, source = _kinds(reader, count.value)
    labels = [] if listed is not None else [_label(reader, sets, kind) for kind in kinds]
    if listed is not None:
        labels = list(listed)
    elif any(sets) and not any(kinds):
        labels = _without_list(reader, sets, count.value)
    rotates = _rotating(reader, kinds, count.value)
    chosen = [label if on else None for label, on in zip(labels, rotates, strict=True)]
    if listed is None:
        _unused(reader, sets, kinds)
    return Plan(tuple(kinds), tuple(chosen), source if len(set(kinds)) > 1 else count)


def layer_count(reader: Reader) -> Value:
    """How many layers: stated, as many as a list names, of the class, or one."""
    stated = reader.size("num_hidden_layers")
    if stated is not None and stated.key:
        return stated
    for key in ("layer_types", "no_rope_layers"):
        value = reader.raw(key)
        if value is not None and isinstance(value.value, (list, tuple)):
            length = len(value.value)
            if 1 <= length <= LIMITS["num_hidden_layers"]:
                return Value(length, value.source)
    return stated or Value(1, ASSUMED)


def _kinds(reader: Reader, count: int) -> tuple[list[str | None], Value]:
    """The kind of each layer, from the file or the rule of the class."""
    given = reader.raw("layer_types")
    if given is not None and isinstance(given.value, (list, tuple)) and len(given.value) <= WIDEST:
        types = [str(kind)[:60] for kind in given.value]
        if len(types) == count:
            return list(types), given
        reader.notes.add(
            findings.LIST_LENGTH, given, key=given.key, length=len(types), layers=count
        )
        if len(types) > count:
            return list(types[:count]), given
    listed = _listed(reader, count)
    if listed is not None:
        return listed
    period = None
    key = reader.facts.period_key or ("sliding_window_pattern" if not reader.facts.known else None)
    if key and (value := reader.raw(key)) is not None:
        period = value.value if type(value.value) is int and 0 < value.value < WIDEST else None
    made = reader.facts.layer_types(count, period)
    if made is None and period and not reader.facts.known:
        kinds = ["full_attention" if (i + 1) % period == 0 else "sliding_attention"
                 for i in range(count)]  # fmt: skip
        return list(kinds), Value(period, f"file:{key}")
    return list(made or [None] * count), Value(None, CLASS_DEFAULT)


def _listed(reader: Reader, count: int) -> tuple[list[str | None], Value] | None:
    """Older lists that say which layers are of which kind."""
    picks = (
        ("full_attn_idxs", "full_attention", "conv"),
        ("cross_attention_layers", "cross_attention", "self_attention"),
        ("attn_layer_indices", "full_attention", "linear_attention"),
    )
    for key, inside, outside in picks:
        value = reader.raw(key)
        if value is not None and isinstance(value.value, (list, tuple)):
            chosen = {i for i in value.value if isinstance(i, int)}
            return [inside if i in chosen else outside for i in range(count)], value
    flags = (
        ("attn_type_list", ("linear_attention", "full_attention")),
        ("hybrid_layer_pattern", ("full_attention", "sliding_attention")),
    )
    for key, names in flags:
        value = reader.raw(key)
        if value is None or not isinstance(value.value, (list, tuple)):
            continue
        if len(value.value) != count:
            reader.notes.add(
                findings.LIST_LENGTH, value, key=key, length=len(value.value), layers=count
            )
            continue
        return [names[1] if flag in (1, True) else names[0] for flag in value.value], value
    return None


def _label(reader: Reader, sets: Mapping[str, Parameters], kind: str | None) -> str | None:
    """The label of a layer's parameters by its kind."""
    if kind not in sets:
        kind = reader.facts.row.get("label_of", {}).get(kind, kind)
    if kind in sets:
        return kind
    if ALL in sets:
        rotating = reader.facts.row.get("rotates")
        named = isinstance(rotating, list) and kind in rotating
        return ALL if kind not in NOT_ATTENTION or named else None
    if kind is None or kind in NOT_ATTENTION:
        return None
    absent = reader.facts.labels and kind in reader.facts.labels
    if not absent and not reader.facts.known:
        reader.notes.add(
            findings.NO_PARAMETERS,
            None,
            kind=kind,
            labels=" and ".join(sets),
            used=next(iter(sets)),
        )
        return next(iter(sets))
    if not absent and "rotates" not in reader.facts.row:
        reader.notes.add(
            findings.STRANGE,
            "layer_types",
            kind=kind,
            model_type=reader.facts.model_type,
            labels=" and ".join(reader.facts.labels),
        )
    return None


def _without_list(reader: Reader, sets: Mapping[str, Parameters], count: int) -> list[str | None]:
    """Several sets of parameters, and nothing that says which layer has which."""
    used = "full_attention" if "full_attention" in sets else next(iter(sets))
    if len(sets) > 1:
        reader.notes.add(
            findings.NO_LAYER_LIST,
            "layer_types",
            labels=" and ".join(label or "all" for label in sets),
            used=used,
        )
    return [used] * count


def _rotating(reader: Reader, kinds: list[str | None], count: int) -> list[bool]:
    """Whether each layer rotates at all, apart from its parameters."""
    flags = reader.raw("no_rope_layers")
    if flags is not None and isinstance(flags.value, (list, tuple)):
        if len(flags.value) == count:
            on = [flag in (1, True) for flag in flags.value]
            _tell_flags(reader, flags, on)
            return on
        if len(flags.value) == 0:
            reader.notes.add(findings.NO_ROPE_EMPTY, flags, interval=_interval(reader))
        else:
            reader.notes.add(
                findings.LIST_LENGTH, flags, key=flags.key, length=len(flags.value), layers=count
            )
    if reader.facts.row.get("rotates_where") == "no_rope_layers" or (
        not reader.facts.known and reader.raw("no_rope_layer_interval") is not None
    ):
        interval = _interval(reader)
        return [(i + 1) % interval != 0 for i in range(count)]
    rule = reader.facts.row.get("rotates")
    if isinstance(rule, list) and rule and isinstance(rule[0], str) and any(kinds):
        null = reader.facts.row.get("all_rotate_if_null")
        if null and null in reader.store and reader.store[null].value is None:
            return [True] * count
        return [kind in rule for kind in kinds]
    return [True] * count


def _interval(reader: Reader) -> int:
    value = reader.raw("no_rope_layer_interval")
    if value is not None and type(value.value) is int and value.value > 0:
        return value.value
    return reader.facts.default("no_rope_layer_interval") or DEFAULT_INTERVAL


def _tell_flags(reader: Reader, flags: Value, on: list[bool]) -> None:
    layers = {
        state: tuple(i for i, own in enumerate(on) if own is state) for state in (True, False)
    }
    reader.notes.add(
        findings.NO_ROPE_LAYERS,
        flags,
        on=ranges(layers[True]) or "none",
        off=ranges(layers[False]) or "none",
    )


def _unused(reader: Reader, sets: Mapping[str, Parameters], kinds: list[str | None]) -> None:
    """Tell of sets in the file that belong to no layer."""
    if not any(kinds):
        return
    for label, own in sets.items():
        stated = any(v.key for v in own.values())
        names = reader.facts.row.get("label_of", {})
        if label and stated and label not in {names.get(kind, kind) for kind in kinds}:
            reader.notes.add(
                findings.LABEL_UNUSED,
                f"rope_parameters.{label}",
                label=label,
                kinds=", ".join(sorted({str(k) for k in kinds})),
            )
