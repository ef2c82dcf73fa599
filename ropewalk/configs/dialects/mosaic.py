"""MPT in the format of MosaicML's own code: attn_config says how position enters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.reader import store_of
from ropewalk.configs.value import Value

NAME = "mpt"


def matches(config: Mapping[str, Any]) -> bool:
    """By its model_type."""
    return config.get("model_type") == "mpt"


def translate(config: Mapping[str, Any]) -> dict[str, Value]:
    """alibi, rope with its theta, or else a learned table."""
    store = store_of(config)
    attention = config.get("attn_config")
    if not isinstance(attention, Mapping):
        return store
    inner = store_of(attention, "attn_config.")
    if inner.get("alibi", Value(None, "")).value is True:
        store["@kind"] = Value("alibi", "file:attn_config.alibi")
    elif inner.get("rope", Value(None, "")).value is True:
        store["@kind"] = Value("rotary", "file:attn_config.rope")
        store["@layout"] = Value("half", "class default")
        if "rope_theta" in inner:
            store["rope_theta"] = inner["rope_theta"]
        store["rope_parameters"] = Value(_block(attention, inner), "file:attn_config")
    elif inner.get("alibi", Value(None, "")).value is False:
        learned = store.get("learned_pos_emb", Value(True, "class default"))
        kind = "learned" if learned.value is not False else "none"
        store["@kind"] = Value(kind, learned.source)
    return store


def _block(attention: Mapping[str, Any], inner: Mapping[str, Value]) -> dict[str, Value]:
    """theta, and the scaling of rope_hf_config, which counts where rope_impl is hf."""
    block = {"rope_theta": inner["rope_theta"]} if "rope_theta" in inner else {}
    scaling = attention.get("rope_hf_config")
    if attention.get("rope_impl") != "hf" or not isinstance(scaling, Mapping):
        return block
    given = store_of(scaling, "attn_config.rope_hf_config.")
    if scaling.get("type") == "no_scaling":  # its factor is a leftover
        return block
    return {**block, **given}
