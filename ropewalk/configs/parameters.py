"""The rope parameters of each kind of layer, gathered from every place that a file may put them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.findings import layers, numbers, spelling
from ropewalk.configs.reader import Reader, number
from ropewalk.configs.value import ASSUMED, CLASS_DEFAULT, Value, shown

Parameters = dict[str, Value]
ALL = ""
"""The label of parameters that every layer shares."""

BLOCKS = ("rope_parameters", "rope_scaling")
THETA, PARTIAL = "rope_theta", "partial_rotary_factor"
BARE = frozenset(
    [
        "rope_type",
        "factor",
        "original_max_position_embeddings",
        "mrope_section",
        "short_factor",
        "long_factor",
        "low_freq_factor",
        "high_freq_factor",
        "beta_fast",
        "attention_factor",
    ]
)
"""Keys by which a dictionary is known as rope parameters that stand alone."""

THETA_KEYS = [
    "rope_theta",
    "rotary_emb_base",
    "rope_local_base_freq",
    "local_rope_theta",
    "global_rope_theta",
    "swa_rope_theta",
    "rotary_embedding_base",
    "rope_base",
    "default_theta",
]
PARTIAL_KEYS = [PARTIAL, "rotary_pct", "rotary_percent", "rope_pct", "rope_percent"]


def parameters_of(reader: Reader) -> dict[str, Parameters]:
    """label → parameters with theta and partial factor filled in; the label ALL if shared."""
    block = _block(reader)
    sets = _by_label(reader, block)
    _spread(reader, sets)
    for label, own in sets.items():
        _complete(reader, label, own)
    return sets


def expanded(value: Value) -> Parameters:
    """A dictionary's entries, each with its key path."""
    return {
        key: item if isinstance(item, Value) else Value(item, f"{value.source}.{key}")
        for key, item in value.value.items()
    }


def _block(reader: Reader) -> Parameters:
    """rope_parameters and rope_scaling in one; where both speak, rope_scaling wins."""
    merged: Parameters = {}
    for name in BLOCKS:
        value = reader.store.get(name)
        if value is None or value.value is None or value.value is False or value.value == {}:
            continue
        if not isinstance(value.value, Mapping):
            reader.notes.add(
                numbers.WRONG_TYPE,
                value,
                key=name,
                value=value.value,
                expected="an object with a rope_type",
            )
            continue
        for key, item in expanded(value).items():
            if key in merged and not _same(merged[key].value, item.value):
                _disagree(reader, item, merged[key], item)
            merged[key] = item
    if not merged and reader.facts.model_type is None and BARE & set(reader.store):
        merged = dict(reader.store)
    return merged


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a is None or b is None)


def _disagree(reader: Reader, used: Value, first: Value, second: Value) -> None:
    reader.notes.add(
        spelling.TWO_SPELLINGS,
        second,
        first_key=first.source_key,
        first=first.value,
        second_key=second.source_key,
        second=second.value,
        used=used.source_key,
    )


def _by_label(reader: Reader, block: Parameters) -> dict[str, Parameters]:
    """The parameters that the block gives, by label; class defaults where it gives none."""
    facts = reader.facts
    nested = {k: v for k, v in block.items() if isinstance(v.value, Mapping)}
    absent = {
        k
        for k, v in block.items()
        if v.value is None and (k in facts.labels or k.endswith("_attention"))
    }
    if nested:
        for key, value in block.items():
            if key not in nested and key not in absent and key not in ("rope_type", "type"):
                reader.notes.add(spelling.BESIDE_NESTED, value, key=key, value=value.value)
        sets = {label: expanded(value) for label, value in nested.items()}
        for label in facts.labels:
            if label not in sets and label not in absent:
                sets[label] = _defaults(facts.rope[label])
        return sets
    if not block:
        labels = facts.rope or _labels_of_keys(reader)
        return {label: _defaults(own) for label, own in labels.items()} or {ALL: {}}
    if not facts.labels:
        own = _labels_of_keys(reader)
        return {label: dict(block) for label in own} or {ALL: dict(block)}
    return _flat_for_labels(reader, block)


def _flat_for_labels(reader: Reader, block: Parameters) -> dict[str, Parameters]:
    """A flat block for a class that keeps one set for each kind of layer."""
    facts = reader.facts
    targets = [label for label in facts.scaling_goes_to if label in facts.rope] or facts.labels
    goes = facts.row.get("scaling_goes_to")
    if any(v.source.startswith("file:rope_parameters") for v in block.values()) or goes == [ALL]:
        targets = [t for t in targets if t == "full_attention"] or targets
        reader.notes.add(
            spelling.FLAT_FOR_NESTED,
            next(iter(block.values())).source_key.rsplit(".", 1)[0],
            model_type=facts.model_type,
            labels=" and ".join(facts.labels),
            target=targets[0],
        )
    sets = {label: _defaults(facts.rope[label]) for label in facts.labels}
    elsewhere = [label for label in reader.goes_to.get(THETA, []) if label in sets]
    apart = bool(elsewhere) and not set(elsewhere) & set(targets)
    for label in targets:
        kept = {k: v for k, v in block.items() if not (apart and k == THETA)}
        own = {k: v for k, v in sets[label].items() if k in (THETA, PARTIAL)}
        sets[label] = {**own, **kept}
    if apart and THETA in block:
        for label in elsewhere:
            sets[label][THETA] = block[THETA]
    return sets


def _labels_of_keys(reader: Reader) -> dict[str, dict[str, Any]]:
    """Labels that an unknown class must have, since its file has a theta for each."""
    if reader.facts.known:
        return {}
    local = reader.raw("rope_local_base_freq", "local_rope_theta", "swa_rope_theta")
    return {} if local is None else {"full_attention": {}, "sliding_attention": {}}


def _defaults(own: Mapping[str, Any]) -> Parameters:
    return {key: Value(value, CLASS_DEFAULT) for key, value in own.items()}


def _spread(reader: Reader, sets: dict[str, Parameters]) -> None:
    """Thetas and partial factors that stand outside the block, into the sets they are for."""
    for key, labels in reader.goes_to.items():
        value = reader.store.get(key)
        if value is None or key in ("rotary_dim",):
            continue
        what = THETA if "theta" in key or "base" in key else PARTIAL
        if value.value is None:
            if what == THETA and key == "rope_theta" and "rope_theta" in reader.store:
                _null_theta(reader, value, sets)
            continue
        if isinstance(value.value, (list, tuple)) and what == THETA:
            continue
        for label in _targets(labels, sets, what, value):
            _put(reader, sets[label], what, value)
    _strangers(reader, sets)


def _targets(labels: list[str], sets: dict[str, Parameters], what: str, value: Value) -> list[str]:
    """The sets that a key outside the block is for: those of its class, or all.

    Beside sets with values of their own it may repeat that of one; then it is for that one.
    """
    own = [label for label in labels if label in sets]
    if own:
        return own
    given = {label: own[what] for label, own in sets.items() if what in own and own[what].key}
    same = [label for label, inner in given.items() if _same_number(inner, value)]
    return same if len(sets) > 1 and len(given) == len(sets) and same else list(sets)


def _null_theta(reader: Reader, value: Value, sets: dict[str, Parameters]) -> None:
    inner = [own[THETA].value for own in sets.values() if THETA in own and own[THETA].key]
    if inner:
        return
    used = next((reader.facts.lacking(label, THETA) for label in sets), None) or 10000.0
    reader.notes.add(numbers.NULL_THETA, value, key=value.key, used=used)


def _put(reader: Reader, own: Parameters, what: str, value: Value) -> None:
    """Take a value from outside the block, unless the block has one of its own."""
    inner = own.get(what)
    if inner is None or inner.key is None or inner.value is None:
        own[what] = value
    elif inner is not value and not _same_number(inner, value):
        _disagree(reader, inner, inner, value)


def _same_number(a: Value, b: Value) -> bool:
    try:
        return float(a.value) == float(b.value)
    except (TypeError, ValueError, OverflowError):
        return a.value == b.value


def _strangers(reader: Reader, sets: dict[str, Parameters]) -> None:
    """Theta and partial factor under names that this class does not read."""
    if not reader.facts.known or reader.facts.kind != "rotary" or "@dialect" in reader.store:
        return
    for what, names in ((THETA, THETA_KEYS), (PARTIAL, PARTIAL_KEYS)):
        own = [key for key in names if key in reader.goes_to]
        for key in names:
            value = reader.raw(key)
            if value is None or key in own or (what == PARTIAL and not own):
                continue
            _tell_stranger(reader, sets, what, value, own)


def _tell_stranger(
    reader: Reader, sets: dict[str, Parameters], what: str, value: Value, own: list[str]
) -> None:
    used = next(iter(sets.values())).get(what)
    if used is not None and _same_number(used, value):
        return
    lacking = reader.facts.lacking(next(iter(sets)), what)
    remedy = f"write it as {own[0] if own else f'rope_parameters.{what}'}"
    if not reader.facts.goes_to:
        remedy = "remove it: the class has a constant of its own, which no key changes"
    reader.notes.add(
        spelling.ELSEWHERE,
        value,
        key=value.key,
        value=value.value,
        model_type=reader.facts.model_type,
        what=what,
        used=used.value if used is not None else lacking if lacking is not None else "not stated",
        remedy=remedy,
    )


def _complete(reader: Reader, label: str, own: Parameters) -> None:
    """theta as a number above 0, from the file, the class, or assumed."""
    usual = reader.facts.lacking(label, THETA)
    fallback = Value(usual, CLASS_DEFAULT) if usual is not None else Value(10000.0, ASSUMED)
    given = own.get(THETA)
    if given is not None and given.value is None and given.key:
        reader.notes.add(numbers.NULL_THETA, given, key=given.key, used=fallback.value)
        given = None
    if given is not None and isinstance(given.value, (list, tuple)):
        given = None
    read = None if given is None else number(given, reader.notes)
    if read is not None and read.value <= 0:
        reader.notes.add(
            numbers.BAD_THETA, read, key=read.source_key, value=read.value, used=fallback.value
        )
        read = None
    own[THETA] = read or fallback
    if PARTIAL not in own or own[PARTIAL].value is None:
        usual = reader.facts.lacking(label, PARTIAL)
        if usual is not None:
            own[PARTIAL] = Value(usual, CLASS_DEFAULT)
        else:
            own.pop(PARTIAL, None)


def same_thetas(reader: Reader, sets: dict[str, Parameters]) -> None:
    """Tell of local and global layers with one theta where the class has two."""
    facts = reader.facts
    if len(sets) < 2 or set(sets) != set(facts.labels):
        return
    usual = {label: facts.rope[label].get(THETA) for label in sets}
    found = {label: own[THETA].value for label, own in sets.items()}
    if len(set(usual.values())) < 2 or len(set(found.values())) > 1:
        return
    first, second = max(usual, key=lambda k: usual[k] or 0), min(usual, key=lambda k: usual[k] or 0)
    reader.notes.add(
        layers.SAME_THETA,
        sets[first][THETA],
        first=first,
        second=second,
        theta=found[first],
        model_type=facts.model_type,
        usual=usual[first],
        key=shown(sets[first][THETA].source_key),
    )
