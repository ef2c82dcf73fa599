"""Reading single values out of a config: by any of their names, checked, with their source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ropewalk.configs.architectures import Facts
from ropewalk.configs.findings import Notes, lengths, numbers
from ropewalk.configs.value import CLASS_DEFAULT, Value

WIDEST = 1 << 16
"""No head, list or stack of layers is larger; a larger number in a file is a mistake."""

NAMES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim", "n_embed", "embed_dim"),
    "num_attention_heads": (
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "attention_heads",
        "decoder_attention_heads",
        "encoder_attention_heads",
    ),
    "num_hidden_layers": (
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        "depth",
        "decoder_layers",
        "encoder_layers",
    ),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim", "d_kv", "head_size"),
    "max_position_embeddings": (
        "max_position_embeddings",
        "n_positions",
        "seq_length",
        "max_seq_len",
        "max_sequence_length",
        "n_ctx",
        "model_max_length",
    ),
}
"""The names that configs give a dimension, the usual one first."""

WIDEST_HEAD = 1 << 11
"""No head is wider; each pair costs a power in 50 digits."""

LIMITS = {
    "num_hidden_layers": 4096,
    "max_position_embeddings": 1 << 62,
    "hidden_size": 1 << 24,
    "num_attention_heads": WIDEST,
    "relative_attention_max_distance": WIDEST,
}


class Reader:
    """A config, the facts of its class, and the notebook for what is wrong with it."""

    def __init__(self, store: Mapping[str, Value], facts: Facts, notes: Notes) -> None:
        self.store = store
        self.facts = facts
        self.notes = notes

    @property
    def goes_to(self) -> dict[str, list[str]]:
        """key of a theta or partial factor → the labels it sets; other dialects say rope_theta."""
        goes = self.facts.goes_to
        if "@dialect" not in self.store or "rope_theta" in goes:
            return goes
        wide = [label for label in self.facts.labels if label == "full_attention"]
        local = [label for label in self.facts.labels if label == "sliding_attention"]
        more = {"rope_theta": wide or [""]}
        return {**goes, **more, **({"rope_local_base_freq": local} if local else {})}

    def raw(self, *names: str) -> Value | None:
        """The first of these keys that the file has and that is not null."""
        for name in names:
            value = self.store.get(name)
            if value is not None and value.value is not None:
                return value
        return None

    def size(self, key: str) -> Value | None:
        """A dimension by any of its names: an int ≥ 1; else the class default; else None."""
        names = dict.fromkeys((*self.facts.names(key), *NAMES.get(key, (key,))))
        found = self._sizes(names, LIMITS.get(key, WIDEST_HEAD))
        if len(found) > 1 and key == "max_position_embeddings":
            first, other = found[0], next((f for f in found if f.value != found[0].value), None)
            if other is not None:
                self.notes.add(
                    lengths.LENGTHS_DIFFER,
                    other,
                    first_key=first.key,
                    first=first.value,
                    second_key=other.key,
                    second=other.value,
                )
        if found:
            return found[0]
        if key == "head_dim" and "@head_dim" in self.store:
            return self.store["@head_dim"]
        default = self.facts.default(key)
        return None if default is None else Value(default, CLASS_DEFAULT)

    def _sizes(self, names: Iterable[str], limit: int) -> list[Value]:
        found = (self.raw(name) for name in names)
        checked = (whole(v, self.notes, at_most=limit) for v in found if v is not None)
        return [v for v in checked if v is not None]

    def number(self, *names: str) -> Value | None:
        """A finite number under the first of these names that is there."""
        value = self.raw(*names)
        return None if value is None else number(value, self.notes)

    def flag(self, name: str) -> bool | None:
        """A boolean, 0 or 1; None if it is not there or something else."""
        value = self.store.get(name)
        return bool(value.value) if value is not None and value.value in (True, False) else None


def number(value: Value, notes: Notes) -> Value | None:
    """The value as a finite float or int; a number written as text is read, and told."""
    found = value.value
    if isinstance(found, bool) or not isinstance(found, (int, float, str)):
        notes.add(numbers.WRONG_TYPE, value, key=value.source_key, value=found, expected="a number")
        return None
    if isinstance(found, str):
        try:
            read = float(found)
        except ValueError:
            notes.add(
                numbers.WRONG_TYPE, value, key=value.source_key, value=found, expected="a number"
            )
            return None
        notes.add(numbers.TEXT, value, key=value.source_key, value=found, read=read)
        found = read
    try:
        finite = math.isfinite(float(found))
    except OverflowError:
        finite = False
    if not finite:
        notes.add(numbers.NOT_FINITE, value, key=value.source_key, value=str(found)[:20])
        return None
    return Value(found, value.source)


def whole(value: Value, notes: Notes, *, at_least: int = 1, at_most: int = WIDEST) -> Value | None:
    """The value as an int within its bounds; 8192.0 is read as 8192."""
    read = number(value, notes)
    if read is None:
        return None
    found = read.value
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if not isinstance(found, int) or not at_least <= found <= at_most:
        notes.add(
            numbers.OUT_OF_RANGE,
            value,
            key=value.source_key,
            value=read.value,
            expected=f"a whole number from {at_least} to {at_most}",
        )
        return None
    return Value(found, value.source)


def numbers_of(value: Value, notes: Notes) -> tuple[float, ...] | None:
    """The value as a list of finite numbers."""
    found = value.value
    if not isinstance(found, (list, tuple)):
        notes.add(
            numbers.WRONG_TYPE,
            value,
            key=value.source_key,
            value=found,
            expected="a list of numbers",
        )
        return None
    if len(found) > WIDEST_HEAD:
        notes.add(
            numbers.OUT_OF_RANGE,
            value,
            key=value.source_key,
            value=f"a list of {len(found)}",
            expected=f"at most {WIDEST_HEAD} long",
        )
        return None
    aside = Notes(notes.prefix)
    items = [number(Value(item, f"{value.source}[{i}]"), aside) for i, item in enumerate(found)]
    for finding in {f.code: f for f in reversed(aside.findings)}.values():
        notes.findings.append(finding)  # the first of each kind: one mistake, not one an entry
    if any(item is None for item in items):
        return None
    return tuple(item.value for item in items if item is not None)


def store_of(config: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Every key of a config as a value with its source."""
    return {key: Value(item, f"file:{prefix}{key}") for key, item in config.items()}
