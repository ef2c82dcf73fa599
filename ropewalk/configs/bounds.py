"""Bounds on how much a config may hold; far beyond any real one, so that none takes long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.value import shown

MOST_KEYS = 1 << 16
"""Keys of one object; the largest real ones list some 22,000 classes."""

MOST_SETS = 128
"""Nested configs, sets of rope parameters and different thetas of layers, all together."""

MOST_PARAMETERS = 256
"""Keys of one set of rope parameters."""

BLOCKS = ("rope_parameters", "rope_scaling")
THETAS = ("rope_theta", "layer_rope_theta")


def check_bounds(config: Mapping[str, Any]) -> None:
    """Refuse a config that holds more than any model's.

    Raises:
        ValueError: it does; the message names the key and the bound.
    """
    sets = 0
    todo: list[tuple[str, Mapping[str, Any]]] = [("", config)]
    while todo:
        path, here = todo.pop()
        if len(here) > MOST_KEYS:
            raise ValueError(f"{path or 'the config'} has {len(here)} keys, above {MOST_KEYS}")
        nested = {k: v for k, v in here.items() if isinstance(v, Mapping)}
        todo += [(f"{path}{k}.", v) for k, v in nested.items() if str(k).endswith("_config")]
        blocks = [(path + key, nested[key]) for key in BLOCKS if key in nested]
        sets += sum(_sets(where, block) for where, block in blocks)
        sets += sum(_different(here.get(key)) for key in THETAS) + 1
        if sets + len(todo) > MOST_SETS:
            raise ValueError(
                f"more than {MOST_SETS} nested configs, sets of rope parameters and different "
                "thetas; no model has so many"
            )


def _sets(path: str, block: Mapping[str, Any]) -> int:
    """How many sets of parameters a block holds beside its own."""
    if len(block) > MOST_PARAMETERS:
        raise ValueError(f"{path} has {len(block)} keys, above {MOST_PARAMETERS}")
    nested = sum(isinstance(value, Mapping) for value in block.values())
    return nested + sum(_different(block.get(key)) for key in THETAS)


def _different(thetas: Any) -> int:
    """How many different values a list has; 0 for anything else."""
    if not isinstance(thetas, (list, tuple)):
        return 0
    return len({shown(item) for item in thetas[:MOST_KEYS]})
