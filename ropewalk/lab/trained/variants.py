"""The same weights under another config's rotation: what would run if the config were written.

The model is built anew from the changed config, without memory for weights, and takes the
parameters of the one that is there; so whatever a config changes, in tables or in the scale of
attention, is changed. Its live frequencies are then compared with those of the plan.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.configs.extend import Plan
from ropewalk.models.exact import frequencies
from ropewalk.models.loading import quiet
from ropewalk.models.said import said

TOLERANCE = 1e-5
"""Relative, of a float32 frequency that a rotary module computes."""


def variant(model: nn.Module, plan: Plan) -> nn.Module:
    """``model`` under the config of ``plan``, in eval mode; weights are shared, not copied.

    Raises:
        ValueError: the class cannot be built so, or does not turn by the frequencies of the plan.
    """
    cls: Any = type(model)
    with quiet():
        try:
            config = _changed(model.config, plan)
            with torch.device("meta"):
                made = cls(config).eval()
            made.load_state_dict(model.state_dict(), strict=True, assign=True)
        except Exception as error:  # whatever a class of somebody else's raises
            raise ValueError(
                f"{cls.__name__} cannot be built from the config of {plan.method} "
                f"×{plan.factor:g}: {said(error)}"
            ) from None
        _fill(made, model)
    _require_frequencies(made, plan)
    return made


def _changed(config: Any, plan: Plan) -> Any:
    """The config with the keys of the plan in its text part."""
    text = config.get_text_config()
    own = type(text).from_dict({**text.to_dict(), **plan.changed()})
    own._attn_implementation = text._attn_implementation
    if text is config:
        return own
    whole = type(config).from_dict(config.to_dict())
    name = next(key for key in config.sub_configs if getattr(config, key) is text)
    setattr(whole, name, own)
    return whole


def _fill(made: nn.Module, model: nn.Module) -> None:
    """Give ``made`` the buffers that no checkpoint holds: its own tables, else the model's."""
    for name, module in list(made.named_modules()):
        if frequencies(module) and _on_meta(module):
            made.set_submodule(name, _rebuilt(name, module))
    for name, module in made.named_modules():
        original = model.get_submodule(name)
        for key, buffer in list(module.named_buffers(recurse=False)):
            if buffer.is_meta:
                module._buffers[key] = original.get_buffer(key)


def _rebuilt(name: str, module: nn.Module) -> nn.Module:
    config = getattr(module, "config", None)
    if config is None:
        raise ValueError(f"{name} ({type(module).__name__}) keeps no config to be built from")
    cls: Any = type(module)
    try:
        return cls(config=config).eval()
    except Exception as error:  # here too
        raise ValueError(f"{name} ({cls.__name__}) cannot be built: {said(error)}") from None


def _on_meta(module: nn.Module) -> bool:
    return any(buffer.is_meta for _, buffer in module.named_buffers(recurse=False))


def _require_frequencies(made: nn.Module, plan: Plan) -> None:
    """Refuse a model whose live frequencies are not those of the plan."""
    live = [b for m in made.modules() for b in frequencies(m).values()]
    for _, group in plan.groups():
        if not any(_same(buffer, group.inv_freq) for buffer in live):
            raise ValueError(
                f"{type(made).__name__} does not turn by the frequencies of {plan.method} "
                f"×{plan.factor:g} when its config says so; it cannot be measured"
            )


def _same(live: Tensor, wanted: tuple[float, ...]) -> bool:
    expected = torch.tensor(wanted, dtype=torch.float64)
    found = live.detach().double().cpu().flatten()
    turning = expected[expected != 0]
    return any(
        found.shape == each.shape and torch.allclose(found, each, rtol=TOLERANCE, atol=0.0)
        for each in (expected, turning)
    )
