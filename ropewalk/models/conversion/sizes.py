"""Numbers of heads as a config states them, to hold against the shapes of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.architectures import facts
from ropewalk.configs.reader import NAMES

_KEY_HEADS = (
    "num_key_value_heads",
    "n_kv_heads",
    "num_kv_heads",
    "n_head_kv",
    "multi_query_group_num",
    "num_query_groups",
)


def query_heads(model_type: str | None, config: Mapping[str, Any]) -> int | None:
    """Query heads by the file or the class; None if neither says it, or layers differ."""
    known = facts(model_type)
    names = (*known.names("num_attention_heads"), *NAMES["num_attention_heads"])
    stated = _stated(config, names)
    return known.default("num_attention_heads") if stated is None else _count(stated)


def key_heads(config: Mapping[str, Any]) -> int | None:
    """Key heads that the file states as one number; None if it does not."""
    return _count(_stated(config, _KEY_HEADS))


def _stated(config: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
