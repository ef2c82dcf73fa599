"""One layer of each kind through the real attention of transformers, where it has the class."""

from __future__ import annotations

from typing import Any

from ropewalk.configs.layouts import RECORD
from ropewalk.models.conversion import modules
from ropewalk.models.conversion.plan import Layer, Plan
from ropewalk.models.conversion.probe import Reader
from ropewalk.models.conversion.record import usual_layout
from ropewalk.models.loading import hushed
from ropewalk.models.said import said


def through_modules(
    planned: Plan,
    configs: tuple[dict[str, Any], dict[str, Any]],
    readers: tuple[Reader, Reader],
    to: str,
) -> dict[str, float | str]:
    """Layer → the largest relative difference of its attention's output, or why it did not run.

    Raises:
        ValueError: it ran and gave something else.
    """
    found: dict[str, float | str] = {}
    if planned.layout == to:
        return found
    for layer in _one_of_each(planned):
        try:
            with hushed():
                apart = _difference(layer, planned, configs, readers, to)
        except Exception as error:  # classes fail in any way when they are run alone
            words = "" if isinstance(error, modules.NotRun) else f"{type(error).__name__}: "
            found[layer.name] = words + said(error)
            continue
        found[layer.name] = apart
        if not apart <= modules.TOLERANCE:
            raise ValueError(
                f"{layer.name}: attention of transformers gives outputs that differ by {apart:.3g} "
                "after the conversion; nothing is kept, please report it"
            )
    return found


def _difference(
    layer: Layer,
    planned: Plan,
    configs: tuple[dict[str, Any], dict[str, Any]],
    readers: tuple[Reader, Reader],
    to: str,
) -> float:
    natives = tuple(usual_layout(config) for config in configs)
    made = tuple(_config(config) for config in configs)
    return modules.output_difference(layer, made, readers, natives, (planned.layout, to))  # pyright: ignore[reportArgumentType]


def _config(config: dict[str, Any]) -> Any:
    """The config object of transformers; never code of the model's own."""
    from transformers import CONFIG_MAPPING

    name = config.get("model_type")
    if not isinstance(name, str) or name not in CONFIG_MAPPING:
        raise modules.NotRun(f"transformers has no class for model_type {name!r}")
    return CONFIG_MAPPING[name].from_dict({k: v for k, v in config.items() if k != RECORD})


def _one_of_each(planned: Plan) -> list[Layer]:
    """The first layer of each group."""
    seen: list[Any] = []
    chosen = []
    for layer in planned.layers:
        if layer.turned and layer.group not in seen:
            seen.append(layer.group)
            chosen.append(layer)
    return chosen
