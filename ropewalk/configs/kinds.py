"""How position enters: by rotation, or by a table, a bias, sinusoids, or not at all."""

from __future__ import annotations

from ropewalk.configs.context import declared_of
from ropewalk.configs.findings import Notes, behaviour, layers
from ropewalk.configs.parameters import BLOCKS, THETA_KEYS
from ropewalk.configs.reader import Reader, whole
from ropewalk.configs.resolved import Context, LayerGroup
from ropewalk.configs.value import ASSUMED, CLASS_DEFAULT, Value

BY_POSITION_TYPE = {
    "absolute": "learned",
    "learned": "learned",
    "rope": "rotary",
    "rotary": "rotary",
    "alibi": "alibi",
    "sinusoidal": "sinusoidal",
    "none": "none",
    "nope": "none",
}
"""position_embedding_type → kind."""

SPOKEN = (*BLOCKS, *THETA_KEYS, "rotary_dim", "rotary_pct", "qk_rope_head_dim", "rope_type", "type")


def kind_of(reader: Reader) -> Value:
    """The kind of position encoding, with its source."""
    stated = reader.store.get("@kind")
    if stated is not None:
        return stated
    rules = reader.facts.row.get("kind_key") or {}
    for key, meanings in rules.items():
        value = reader.store.get(key)
        word = "null" if value is None or value.value is None else str(value.value).lower()
        if word in meanings:
            source = CLASS_DEFAULT if value is None else value.source
            return Value(meanings[word], source)
    flag = reader.flag("alibi")
    if flag and reader.facts.kind in (None, "alibi"):
        return Value("alibi", "file:alibi")
    if reader.flag("mla_use_nope"):
        return Value("none", "file:mla_use_nope")
    rope = reader.store.get("qk_rope_head_dim")
    if rope is not None and type(rope.value) is int and rope.value == 0:
        return Value("none", rope.source)
    if rope is None and reader.facts.default("qk_rope_head_dim") == 0:
        return Value("none", CLASS_DEFAULT)
    given = reader.raw("position_embedding_type")
    if given is not None and not reader.facts.known:
        kind = BY_POSITION_TYPE.get(str(given.value).lower())
        if kind:
            return Value(kind, given.source)
    if reader.facts.kind:
        return Value(reader.facts.kind, CLASS_DEFAULT)
    return Value("rotary", ASSUMED)


def other_group(reader: Reader, kind: Value) -> tuple[tuple[LayerGroup, ...], Context]:
    """The single group of layers that do not rotate, and the lengths."""
    if kind.value in ("other", "none"):
        if kind.value == "none":
            _tell_unused(reader, kind)
        reader = Reader(reader.store, reader.facts, Notes())  # sizes are no matter here
    count = reader.size("num_hidden_layers") or Value(1, ASSUMED)
    heads = reader.size("num_attention_heads")
    head = head_size(reader)
    declared = declared_of(reader)
    details: dict[str, object] = {}
    if kind.value == "alibi" and heads is not None:
        details["heads"] = heads.value
        _tell_heads(reader, heads)
    if kind.value == "learned":
        details.update(_table(reader, declared))
    if kind.value == "t5":
        details.update(_buckets(reader))
    if kind.value not in ("other", "none"):
        _tell_unused(reader, kind)
    provenance = {"kind": kind, "layers": count}
    if head is not None:
        provenance["head_dim"] = head
    group = LayerGroup(
        layers=tuple(range(count.value)),
        kind=kind.value,
        head_dim=0 if head is None else head.value,
        details=details,
        provenance=provenance,
    )
    limit = None if declared is None or kind.value in ("alibi", "t5", "none") else declared.value
    length = None if declared is None else declared.value
    return (group,), Context(limit if limit is not None else length, length, length)


def head_size(reader: Reader) -> Value | None:
    """The width of a head that does not rotate, where something says it."""
    head, hidden = reader.size("head_dim"), reader.size("hidden_size")
    heads = reader.size("num_attention_heads")
    if head is not None or hidden is None or heads is None:
        return head
    return Value(hidden.value // heads.value, f"{hidden.source} / {heads.source_key}")


def _tell_heads(reader: Reader, heads: Value) -> None:
    if heads.value & (heads.value - 1):
        lower = 1 << (heads.value.bit_length() - 1)
        reader.notes.add(
            behaviour.ALIBI_HEADS, heads, heads=heads.value, lower=lower, upper=2 * lower
        )


def _table(reader: Reader, declared: Value | None) -> dict[str, object]:
    """A learned table: the row of position 0, and how many tokens fit."""
    first = _first_row(reader)
    spare = reader.facts.row.get("spare_rows", 0)
    if not first:
        return {"row_of_first_position": 0}
    length = None if declared is None else declared.value
    rows = None if length is None else length + spare
    tokens = None if rows is None else max(0, rows - first)
    reader.notes.add(
        behaviour.TABLE_OFFSET,
        declared,
        row=first,
        rows="" if rows is None else f" of {rows} rows",
        tokens="fit" if tokens is None else tokens,
    )
    return {"row_of_first_position": first, "rows": rows, "tokens": tokens}


def _first_row(reader: Reader) -> int:
    """The row of position 0; some classes count from the row behind that of the padding token."""
    usual = reader.facts.row.get("row_of_first", 0)
    key = reader.facts.row.get("row_after")
    given = None if key is None else reader.raw(key)
    read = None if given is None else whole(given, reader.notes, at_least=0)
    return usual if read is None else read.value + 1


def _buckets(reader: Reader) -> dict[str, object]:
    buckets = reader.size("relative_attention_num_buckets") or Value(32, CLASS_DEFAULT)
    far = reader.size("relative_attention_max_distance") or Value(128, CLASS_DEFAULT)
    return {"buckets": buckets.value, "max_distance": far.value}


def _tell_unused(reader: Reader, kind: Value) -> None:
    """Rope keys of a file whose model does not rotate."""
    for name in SPOKEN:
        value = reader.store.get(name)
        if value is None or not value.value or value.key is None or name == "type":
            continue
        why = f": {kind.key} says {kind.value}" if kind.key else ""
        name_of = reader.facts.model_type or "this model"
        reader.notes.add(
            layers.UNUSED, value, key=name, value=value.value, model_type=name_of, why=why
        )


def tell_not_stated(reader: Reader, theta: Value) -> None:
    """Tell that rotation itself is assumed, as nothing in the file speaks of position."""
    kind = reader.facts.kind or reader.store.get("@kind")
    if kind or any(name in reader.store for name in SPOKEN) or reader.facts.known:
        return
    reader.notes.add(layers.NOT_STATED, None, theta=theta.value)
