"""Which models are known, and how each packs q and k.

Names of tensors prove nothing: what a model does between its projections and its scores is a fact
about its class. A type is in here if a tiny model of it was converted and computed the same
(``scripts/convert_sweep.py``), or if its own code says how it packs (the types below the line).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    """``packing`` of a fused projection; ``gated``: a gate as wide as q follows each query head."""

    packing: str | None = None
    gated: bool = False


PLAIN = Family()
GATED = Family(gated=True)

_SPLIT = """
llama
"""
_GATED = "qwen3_next qwen3_5_text qwen3_5_moe_text"
_PACKED = {
    "blocks": "phi3 dbrx modernbert",
    "by_head": "gpt_neox gpt_neox_japanese persimmon",
    "quarters": "codegen",
}
_BY_THEIR_OWN_CODE = {
    None: """internlm minicpm orion xverse Yi deepseek kimi_k2""",
    "blocks": "baichuan qwen",
    "by_group": "internlm2",
}


def _table() -> dict[str, Family]:
    table = dict.fromkeys(_SPLIT.split(), PLAIN)
    table |= dict.fromkeys(_GATED.split(), GATED)
    for rows in (_PACKED, _BY_THEIR_OWN_CODE):
        for packing, names in rows.items():
            table |= dict.fromkeys(names.split(), Family(packing))
    return table


KNOWN: dict[str, Family] = _table()
"""model_type → how it packs q and k."""


def family_of(model_type: str | None, dialect: str, config: Mapping[str, Any]) -> Family:
    """How a model packs q and k.

    Raises:
        ValueError: it is not known.
    """
    if dialect == "params.json":
        return PLAIN
    if model_type == "falcon":
        return _falcon(config)
    if model_type == "chatglm":
        return _chatglm(config)
    family = KNOWN.get(model_type or "")
    if family is None:
        raise ValueError(
            f"how model_type {model_type!r} packs q and k is not known, so a conversion cannot be "
            "proved; known are the types that docs/convert.md lists"
        )
    return family


def _falcon(config: Mapping[str, Any]) -> Family:
    """Groups in the newer decoder; one key head for all, or head by head, in the older."""
    if config.get("new_decoder_architecture"):
        return Family("by_group")
    return Family("blocks" if config.get("multi_query", True) else "by_head")


def _chatglm(config: Mapping[str, Any]) -> Family:
    return Family("blocks" if config.get("multi_query_attention") else "by_head")
