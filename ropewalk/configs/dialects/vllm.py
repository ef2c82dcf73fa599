"""What is given to vLLM: ``hf_overrides``, laid over the config that they stand beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAME = "vllm"


def laid_over(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config with its ``hf_overrides`` in place; as it is if it has none."""
    overrides = config.get("hf_overrides")
    if not isinstance(overrides, Mapping):
        return config
    rest = {key: value for key, value in config.items() if key not in ("hf_overrides", "flags")}
    return merged(rest, overrides)


def merged(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``overrides`` over ``config``, objects into objects."""
    result = dict(config)
    for key, value in overrides.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[key] = merged(old, value)
        else:
            result[key] = value
    return result
