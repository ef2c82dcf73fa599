"""What transformers itself computes for a config: the frequencies of its own rotary modules."""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import Any

import torch


def config_class(model_type: str | None) -> type | None:
    """The config class of a model_type, or None."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        return CONFIG_MAPPING[str(model_type)]
    except KeyError:
        return None


def text_config(config: Any) -> Any:
    """The part of a config object that reads text."""
    keys = getattr(type(config), "sub_configs", {})
    return getattr(config, "text_config", config) if "text_config" in keys else config


def rotary_module(config: Any) -> torch.nn.Module | None:
    """The rotary module of the class that this config is for, or None."""
    own = type(config)
    try:
        file = importlib.import_module(own.__module__.replace("configuration_", "modeling_"))
    except ImportError:
        return None
    for name, value in vars(file).items():
        if not (inspect.isclass(value) and name.endswith("RotaryEmbedding")):
            continue
        parameters = list(inspect.signature(value.__init__).parameters.values())
        if value.__module__ != file.__name__ or len(parameters) < 2:
            continue
        if own.__name__ in str(parameters[1].annotation):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return value(config)  # pyright: ignore[reportCallIssue, reportReturnType]
    return None


def frequencies(module: torch.nn.Module) -> dict[str, list[float]]:
    """label → inv_freq; the label "" if all layers share one."""
    found = {}
    for name, buffer in module.named_buffers():
        if name.endswith("inv_freq") and "original" not in name:
            found[name[: -len("inv_freq")].rstrip("_")] = buffer.double().tolist()
    return found
