"""Bounds on how much a config may hold; far beyond any real one, so that none takes long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_KEYS = 1 << 16
"""Keys of one object; the largest real ones list some 22,000 classes."""

MOST_PARTS = 64
"""Nested configs; real ones have fewer than ten."""

MOST_PARAMETERS = 256
"""Keys of rope parameters, or different thetas of layers."""

BLOCKS = ("rope_parameters", "rope_scaling")
THETAS = ("rope_theta", "layer_rope_theta")


def check_bounds(config: Mapping[str, Any]) -> None:
    """Refuse a config that holds more than any model's.

    Raises:
        ValueError: it does; the message names the key and the bound.
    """
    parts = 0
    todo: list[tuple[str, Mapping[str, Any]]] = [("", config)]
    while todo:
        path, here = todo.pop()
        if len(here) > MOST_KEYS:
            raise ValueError(
                f"{path or 'the config'} has {len(here)} keys; a config has at most {MOST_KEYS}"
            )
        for key, value in here.items():
            if key in BLOCKS and isinstance(value, Mapping):
                _check_block(path + key, value)
            elif key in THETAS:
                _check_thetas(path + key, value)
            if isinstance(value, Mapping) and str(key).endswith("_config"):
                parts += 1
                todo.append((f"{path}{key}.", value))
        if parts > MOST_PARTS:
            raise ValueError(f"more than {MOST_PARTS} nested configs; no model has so many")


def _check_block(path: str, block: Mapping[str, Any]) -> None:
    if len(block) > MOST_PARAMETERS:
        raise ValueError(f"{path} has {len(block)} keys; it may have {MOST_PARAMETERS}")
    _check_thetas(f"{path}.rope_theta", block.get("rope_theta"))


def _check_thetas(path: str, value: Any) -> None:
    if not isinstance(value, (list, tuple)):
        return
    different = len({repr(item)[:40] for item in value[: 1 << 16]})
    if different > MOST_PARAMETERS:
        raise ValueError(
            f"{path} has {different} different values; it may have {MOST_PARAMETERS}"
        )
