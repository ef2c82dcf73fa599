"""phi-1, phi-1.5 and phi-2 before their port to transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.reader import store_of
from ropewalk.configs.value import Value

NAME = "phi-msft"


def matches(config: Mapping[str, Any]) -> bool:
    """By its model_type."""
    return config.get("model_type") in ("phi-msft", "mixformer-sequential")


def translate(config: Mapping[str, Any]) -> dict[str, Value]:
    """The first rotary_dim lanes of each head rotate, theta 10000."""
    return store_of(config)
