"""Layers with sizes of their own: transformers' per_layer_config, and keys for one kind of layer.

``{"head_dim": 128, "per_layer_config": {"5": {"head_dim": 256}}}`` says that layer 5 alone has
wider heads. Some classes have keys for a kind of layer instead (``global_head_dim``,
``swa_head_dim``) and write per_layer_config when saved; where it stands, they read it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.configs.findings import Notes, layers, numbers
from ropewalk.configs.lanes import Lanes, lanes_of
from ropewalk.configs.parameters import BLOCKS, PARTIAL_KEYS, THETA_KEYS, Parameters
from ropewalk.configs.reader import NAMES, Reader, whole
from ropewalk.configs.value import CLASS_DEFAULT, Value

KEY = "per_layer_config"

SIZES = frozenset(
    (
        *NAMES["head_dim"],
        *NAMES["hidden_size"],
        *NAMES["num_attention_heads"],
        "qk_rope_head_dim",
        "qk_nope_head_dim",
        "rotary_dim",
        "rope_dim",
    )
)
"""What a layer may have of its own that matters to its rotation."""

PARAMETERS = frozenset((*BLOCKS, *THETA_KEYS, *PARTIAL_KEYS, "layer_types", "no_rope_layers"))
"""What it may not: transformers keeps these by kind of layer."""

Sizes = dict[str, Value]


def sizes_of_layers(reader: Reader, labels: Sequence[str | None]) -> dict[int, Sizes]:
    """layer → the sizes that it has of its own; ``labels`` are those of the plan."""
    given = reader.store.get(KEY)
    if given is None:
        return _of_kinds(reader, labels)
    if given.value is None:
        return {}
    if not isinstance(given.value, Mapping):
        _wrong(reader, given, "an object with a layer's number for each key")
        return {}
    found: dict[int, Sizes] = {}
    for name, item in given.value.items():
        layer, own = _layer(name), Value(item, f"{given.source}.{name}")
        if layer is None or layer >= len(labels):
            _wrong(reader, own, f"a layer from 0 to {len(labels) - 1} as its key")
        elif not isinstance(item, Mapping):
            _wrong(reader, own, "an object")
        else:
            found[layer] = _read(reader, layer, own)
    return {layer: sizes for layer, sizes in found.items() if sizes}


def parts(
    reader: Reader,
    label: str,
    own: Parameters,
    on: Sequence[int],
    sizes: Mapping[int, Sizes],
) -> list[tuple[tuple[int, ...], Reader, Lanes]]:
    """The layers ``on``, which have ``label``, apart where their sizes differ; each part with its
    reader and its lanes."""
    found = []
    for members, different in _alike(on, sizes):
        local = _reading(reader, different)
        found.append((members, local, lanes_of(local, label, own)))
    usual = lanes_of(Reader(reader.store, reader.facts, Notes()), label, own)
    alike = all(lane.widths == found[0][2].widths for _, _, lane in found)
    for members, _, lane in found:
        if lane.widths != usual.widths or not alike:
            _tell_once(reader, label, sizes.get(members[0], {}), alike)
    return found


def _alike(on: Sequence[int], sizes: Mapping[int, Sizes]) -> list[tuple[tuple[int, ...], Sizes]]:
    """The layers in groups that have the same sizes."""
    groups: dict[str, tuple[list[int], Sizes]] = {}
    for layer in on:
        own = sizes.get(layer, {})
        same = repr(sorted((key, value.value) for key, value in own.items()))
        groups.setdefault(same, ([], own))[0].append(layer)
    return [(tuple(members), own) for members, own in groups.values()]


def _reading(reader: Reader, sizes: Sizes) -> Reader:
    """The reader of a layer with ``sizes`` of its own, whatever names the file has for them."""
    hidden: set[str] = set()
    for names in NAMES.values():
        if not sizes.keys().isdisjoint(names):
            hidden.update(names)
    kept = {key: value for key, value in reader.store.items() if key not in hidden}
    return Reader({**kept, **sizes}, reader.facts, reader.notes)


def _layer(name: Any) -> int | None:
    """A layer's number, written as a number or, in JSON, as digits."""
    if type(name) is int and name >= 0:
        return name
    return int(name) if isinstance(name, str) and name.isascii() and name.isdigit() else None


def _wrong(reader: Reader, value: Value, expected: str) -> None:
    reader.notes.add(
        numbers.WRONG_TYPE, value, key=value.source_key, value=value.value, expected=expected
    )


def _read(reader: Reader, layer: int, own: Value) -> Sizes:
    """The sizes among what one layer has of its own, with findings about the rest."""
    sizes = {}
    for name, item in own.value.items():
        value = Value(item, f"{own.source}.{name}")
        if name in SIZES and item is not None:
            number = whole(value, reader.notes)
            sizes.update({} if number is None else {name: number})
        elif name in PARAMETERS:
            reader.notes.add(layers.OWN_PARAMETERS, value, key=value.source_key, layer=layer)
        elif name == "skip" and "att" in str(item):
            reader.notes.add(
                layers.SKIPPED, value, key=value.source_key, value=str(item)[:60], layer=layer
            )
    return sizes


def _of_kinds(reader: Reader, labels: Sequence[str | None]) -> dict[int, Sizes]:
    """The sizes that the class gives the layers of one kind, under keys of its own."""
    rules = reader.facts.row.get("sizes_of", {})
    made = {label: _of_kind(reader, rule) for label, rule in rules.items()}
    return {i: made[label] for i, label in enumerate(labels) if label in made}


def _of_kind(reader: Reader, rule: Mapping[str, Sequence[Any]]) -> Sizes:
    """``rule``: size → its key, and a number or the two sizes whose difference it is otherwise."""
    sizes: Sizes = {}
    for name, (key, usual) in rule.items():
        stated = reader.size(key)
        if stated is not None:
            sizes[name] = stated
        elif isinstance(usual, list):
            whole_size, other = (sizes[size] for size in usual)
            source = whole_size.source if whole_size.key else other.source
            sizes[name] = Value(max(1, whole_size.value - other.value), source)
        else:
            sizes[name] = Value(usual, CLASS_DEFAULT)
    return sizes


def _tell_once(reader: Reader, label: str, own: Sizes, alike: bool) -> None:
    """Tell of widths by layer that a class in transformers cannot have.

    Its rotary module computes frequencies once, for all layers or, where the class reads
    per_layer_config, for all of one kind (``alike``: those have one width).
    """
    facts = reader.facts
    if "probed" not in facts.row or KEY not in reader.store or (alike and "sizes_of" in facts.row):
        return
    stated = next((value for value in own.values() if value.key), None)
    if stated is not None:
        reader.notes.add(
            layers.WIDTHS,
            stated,
            key=stated.source_key,
            value=stated.value,
            model_type=facts.model_type,
            which=f"all {label} layers" if "sizes_of" in facts.row else "all layers",
        )
