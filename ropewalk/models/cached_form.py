"""How transformers keeps the keys that a config describes, where that is not as they are turned.

Found by running every architecture: a cache filled at positions p and moved to p + 7 is compared
with one filled there (scripts/rerotate_sweep.py).
"""

from __future__ import annotations

from dataclasses import replace

from ropewalk.configs import LayerGroup

SPLIT = frozenset(
    [
        "axk1",
        "axk2",
        "bailing_hybrid",
        "deepseek_v3",
        "deepseek_v32",
        "dots3_note",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "longcat_flash",
        "mistral4",
        "mistral_large4",
        "youtu",
    ]
)
"""Turn neighbouring lanes, and keep the turned ones in halves: all first lanes, then all second
ones (``apply_rotary_pos_emb_interleave``)."""
KEPT = frozenset({"deepseek_v2"})
"""Latent attention that keeps neighbouring lanes side by side."""
BACKWARDS = frozenset({"nanochat"})
"""Turn by the negative angle."""
OTHER_LAYERS = {
    "dory": "it runs some layers several times and keeps the keys of each run",
    "longcat_flash": "each of its layers attends twice",
}
"""Keep keys under other numbers than those of the config's layers."""


def as_cached(group: LayerGroup, model_type: str | None) -> LayerGroup:
    """The lanes and frequencies of ``group`` as they are in a cache.

    Raises:
        ValueError: the order of lanes in the cache is not known.
    """
    if model_type in BACKWARDS:
        group = replace(
            group,
            inv_freq=tuple(-f for f in group.inv_freq),
            variants=tuple(
                replace(v, inv_freq=tuple(-f for f in v.inv_freq)) for v in group.variants
            ),
        )
    if group.layout != "interleaved" or model_type in KEPT:
        return group
    if model_type in SPLIT:
        return replace(group, layout="half")
    origin = group.provenance.get("rotary_dim")
    if origin is not None and "qk_rope_head_dim" in str(origin.source):
        raise ValueError(
            f"model_type={model_type!r} turns neighbouring lanes of latent keys, and whether its "
            "cache keeps them side by side or in halves is not known; give spectra, with the "
            "layout that the keys are in"
        )
    return group


def require_own_layers(name: str, model_type: str | None, described: int, cached: int) -> None:
    """Refuse a cache whose layers are not those of the config, one by one.

    Raises:
        ValueError: they are others, or more.
    """
    why = OTHER_LAYERS.get(model_type or "")
    if why is None and cached > described:
        why = f"the config has {described} layers, the cache has {cached}"
    if why is not None:
        raise ValueError(
            f"{name} is of model_type={model_type!r}, and {why}; give a list with a spectrum, or "
            "None, for each layer of the cache"
        )
