"""The pair layout of converted weights: told where a program reads it, else refused.

A class has one layout, so a config says nothing of it, until ``ropewalk convert`` has moved lanes:
then ``ropewalk_layout``, which no other program reads, or a key of the class does. What is written
for a program must not lose that, since it would turn other pairs without a word.
"""

from __future__ import annotations

from ropewalk.configs.architectures import facts, mlx_reads_traditional
from ropewalk.configs.emit_transformers import Config, rotating
from ropewalk.configs.findings.lanes import CONVERTED
from ropewalk.configs.layouts import LAYOUTS, RECORD
from ropewalk.configs.resolved import LayerGroup, Resolved

KEYS = frozenset(("rope_interleave", "rope_traditional"))
"""Keys by which a program is told; as written they replace those of a whole config."""

OTHER = {"half": "interleaved", "interleaved": "half"}
MLX_TRADITIONAL = "rope_traditional"


def layout_keys(text: Resolved, target: str) -> Config:
    """The key that tells ``target`` how these weights pair lanes; none if its class does so anyway.

    Raises:
        ValueError: ``target`` cannot be told, and would turn other pairs.
    """
    group = rotating(text)[0]
    if group.layout is None or not _moved(text, group):
        return {}
    own = facts(text.model_type).row.get("layout_key")
    if target.startswith("transformers") and own:
        return {own: _flag(LAYOUTS, group.layout)}
    if target.startswith("transformers") and not facts(text.model_type).known:
        return {"rope_interleave": _flag(LAYOUTS, group.layout)}
    if target == "mlx":
        if text.model_type == "mistral4":
            return {"rope_interleave": _flag(LAYOUTS, group.layout)}
        if mlx_reads_traditional(text.model_type) and group.rope_type != "longrope":
            return {MLX_TRADITIONAL: group.layout == "interleaved"}
    raise ValueError(_words(text, group, target))


def _moved(text: Resolved, group: LayerGroup) -> bool:
    """Whether the file says another layout than that of the class."""
    key = group.provenance["layout"].key
    if key is None:
        return False
    if key.rsplit(".", 1)[-1] == RECORD:
        return any(finding.code == CONVERTED.code for finding in text.findings)
    row = facts(text.model_type).row
    return bool(row.get("layout_key")) and group.layout != row.get("layout")


def _flag(names: dict[bool, str], layout: str) -> bool:
    return next(flag for flag, name in names.items() if name == layout)


def _words(text: Resolved, group: LayerGroup, target: str) -> str:
    key, name = group.provenance["layout"].key, text.model_type or "this model"
    usual = OTHER[str(group.layout)]
    why = "" if group.rope_type != "longrope" or target != "mlx" else " with rope_type longrope"
    return (
        f"{key}={group.layout}: these weights pair lanes {group.layout}, "
        f"and {target} turns {usual} pairs in every {name}{why} and has no key to say otherwise; "
        f"convert them back first: ropewalk convert FOLDER OUT --to {usual}"
    )
