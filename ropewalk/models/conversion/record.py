"""The layout of the output, written where the next reader of its config looks."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ropewalk.configs import Resolved, resolve
from ropewalk.configs.architectures import facts
from ropewalk.configs.layouts import LAYOUTS, RECORD


def recorded(config: Mapping[str, Any], to: str) -> tuple[dict[str, Any], str | None]:
    """``config`` for weights in the layout ``to``, and the key that says so.

    No key is needed where the class of the model has this layout anyway; a key of the class is
    used where it has one (``rope_interleave``), and ``ropewalk_layout`` where it has none.

    Raises:
        ValueError: it would not read back.
    """
    made = copy.deepcopy(dict(config))
    part = _text_part(made)
    part.pop(RECORD, None)
    key = None
    if layouts(resolve(made)) != {to}:
        key = facts(resolve(made).text().model_type).row.get("layout_key") or RECORD
        part[key] = to if key == RECORD else _flag(to)
    if layouts(resolve(made)) != {to}:
        raise ValueError(f"the layout {to} cannot be written into this config; it reads otherwise")
    return made, key


def _flag(layout: str) -> bool:
    return next(flag for flag, name in LAYOUTS.items() if name == layout)


def layouts(resolved: Resolved) -> set[str | None]:
    """The layouts of the layers that rotate, in the text part."""
    return {group.layout for group in resolved.text().layers if group.kind == "rotary"}


def usual_layout(config: Mapping[str, Any]) -> str | None:
    """The layout of the model's class, whatever a conversion recorded."""
    made = copy.deepcopy(dict(config))
    _text_part(made).pop(RECORD, None)
    return next(iter(layouts(resolve(made))), None)


def text_path(resolved: Resolved) -> str:
    """The key path of the part that reads text; empty for the config itself."""
    text = resolved.text()
    return next(path for path, part in resolved.everything() if part is text)


def _text_part(config: dict[str, Any]) -> dict[str, Any]:
    part = config
    for key in filter(None, text_path(resolve(config)).split(".")):
        part = part[key]
    return part
