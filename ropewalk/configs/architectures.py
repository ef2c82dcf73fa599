"""Facts of model classes that their files do not say.

``architectures.json`` is found by probing transformers (``scripts/probe_architectures.py``);
``stated.json`` is kept by hand, each entry with its source, and wins where both speak.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

ROPE_SCALING_ANYWHERE: dict[str, list[str]] = {
    "rope_theta": [""],
    "rotary_emb_base": [""],
    "rotary_embedding_base": [""],
    "rope_base": [""],
    "global_rope_theta": ["full_attention"],
    "local_rope_theta": ["sliding_attention"],
    "rope_local_base_freq": ["sliding_attention"],
    "swa_rope_theta": ["sliding_attention"],
    "partial_rotary_factor": [""],
    "rotary_pct": [""],
    "rotary_percent": [""],
    "rope_pct": [""],
    "rope_percent": [""],
}
"""Where spellings go when the class is not known; the label "" means every layer."""


class Facts:
    """What is known of one model_type; an unknown one has no defaults and ``known`` False."""

    def __init__(self, model_type: str | None, row: Mapping[str, Any] | None) -> None:
        self.model_type = model_type
        self.known = row is not None
        self.row = row or {}

    @property
    def kind(self) -> str | None:
        """rotary, learned, alibi, …; None if not known."""
        return self.row.get("kind")

    def default(self, key: str) -> Any:
        """A dimension that the class has unless the file says otherwise; None if not known."""
        return self.row.get("defaults", {}).get(key)

    def names(self, key: str) -> tuple[str, ...]:
        """The key of this class for a dimension, if it has another name than usual."""
        own = self.row.get("names", {}).get(key)
        return (own,) if own else ()

    @property
    def rope(self) -> dict[str, dict[str, Any]]:
        """label → the parameters of a file that says nothing."""
        return self.row.get("rope", {})

    @property
    def labels(self) -> list[str]:
        """The kinds of layers with parameters of their own; empty if all share one set."""
        return [label for label in self.rope if label]

    def lacking(self, label: str, key: str) -> Any:
        """theta or partial factor where a file gives parameters without it."""
        rows = self.row.get("rope_lacking") or self.rope
        for own in (rows.get(label), rows.get("")):
            if own and own.get(key) is not None:
                return own[key]
        return None

    @property
    def scaling_goes_to(self) -> list[str]:
        """The labels that a flat rope_scaling is for."""
        goes = self.row.get("scaling_goes_to")
        if goes and goes != [""]:
            return goes
        return self.labels or [""]

    @property
    def goes_to(self) -> dict[str, list[str]]:
        """key of a theta or partial factor → the labels that it sets."""
        return self.row.get("goes_to", ROPE_SCALING_ANYWHERE)

    def layer_types(self, count: int, period: int | None) -> list[str] | None:
        """The kinds of ``count`` layers that the class makes up."""
        rule = self.row.get("layer_types")
        if not rule:
            return None
        if "list" in rule:
            return list(rule["list"]) if len(rule["list"]) == count else None
        repeat: list[str] = rule["repeat"]
        if period and period != len(repeat) and len(set(repeat)) == 2:
            repeat = _stretched(repeat, period)
        types = [repeat[i % len(repeat)] for i in range(count)]
        if "first" in rule and types:
            types[0] = rule["first"]
        if "last" in rule and types:
            types[-1] = rule["last"]
        return types

    @property
    def newer(self) -> bool:
        """Whether transformers 5 has the class and 4 never had it, nor one that it is part of."""
        if "probed" not in self.row or self.model_type is None:
            return False
        own = {self.model_type, self.model_type.removesuffix("_text")}
        return not own & _old_types()

    @property
    def reads_share(self) -> bool:
        """Whether the class in transformers rotates a share of the lanes without a scaling."""
        return self.model_type not in _share_unread()

    @property
    def period_key(self) -> str | None:
        """The key that sets how often the rarer kind of layer comes."""
        return self.row.get("layer_period")


def _stretched(repeat: list[str], period: int) -> list[str]:
    """The pattern with another period: the rare kind keeps its end of it."""
    rare = min(set(repeat), key=repeat.count)
    usual = next(kind for kind in repeat if kind != rare)
    rest = [usual] * (period - 1)
    return [rare, *rest] if repeat[0] == rare else [*rest, rare]


@cache
def _tables() -> tuple[dict[str, Any], dict[str, Any]]:
    probed = json.loads((HERE / "architectures.json").read_text(encoding="utf-8"))
    stated = json.loads((HERE / "stated.json").read_text(encoding="utf-8"))
    return probed["types"], stated["types"]


def facts(model_type: str | None) -> Facts:
    """The facts of ``model_type``."""
    return Facts(model_type, _row(model_type)) if model_type else Facts(None, None)


@cache
def _old_types() -> frozenset[str]:
    """The model types that transformers 4 has."""
    stated = json.loads((HERE / "stated.json").read_text(encoding="utf-8"))
    return frozenset(stated["transformers4"]["types"].split())


@cache
def _share_unread() -> frozenset[str]:
    """The model types whose unscaled rotation ignores partial_rotary_factor in transformers."""
    stated = json.loads((HERE / "stated.json").read_text(encoding="utf-8"))
    return frozenset(stated["share_unread"]["types"].split())


@cache
def _mlx_traditional() -> frozenset[str]:
    stated = json.loads((HERE / "stated.json").read_text(encoding="utf-8"))
    return frozenset(stated["mlx_traditional"]["types"].split())


def mlx_reads_traditional(model_type: str | None) -> bool:
    """Whether the class in mlx-lm reads ``rope_traditional``, which says how lanes pair."""
    return model_type in _mlx_traditional()


def _row(model_type: str, depth: int = 0) -> dict[str, Any] | None:
    probed, stated = _tables()
    own = stated.get(model_type)
    if own is None:
        return probed.get(model_type)
    base = _row(own["like"], depth + 1) if "like" in own and depth < 4 else probed.get(model_type)
    merged = dict(base or {})
    for key, value in own.items():
        if key in ("defaults", "span") and isinstance(merged.get(key), dict):
            merged[key] = {**merged[key], **value}
        else:
            merged[key] = value
    return merged


def close_to(model_type: str) -> str | None:
    """The known model_type that is spelt most alike, if any is close."""
    probed, stated = _tables()
    close = difflib.get_close_matches(model_type[:80], [*probed, *stated], n=1, cutoff=0.85)
    return close[0] if close else None
