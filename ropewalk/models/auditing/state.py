"""A model left as it was found: rotary modules remember lengths and tables between calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_OWN = frozenset(vars(nn.Module()))
_LARGEST = 1 << 26
"""Numbers in a buffer beyond which it is not copied; tables of positions are smaller."""


class State:
    """What every module of a model holds beside weights, to be put back at any time."""

    def __init__(self, model: nn.Module):
        self._modules = [(module, *_held(module)) for module in model.modules()]

    def restore(self) -> None:
        """Put back attributes and buffers as they were."""
        for module, attributes, buffers in self._modules:
            for name in set(vars(module)) - _OWN - set(attributes):
                del vars(module)[name]
            vars(module).update(attributes)
            for name, (buffer, copy) in buffers.items():
                if copy is not None and not _same(buffer, copy):
                    buffer.copy_(copy)
                module._buffers[name] = buffer
            for name in set(module._buffers) - set(buffers):
                del module._buffers[name]


def _held(module: nn.Module) -> tuple[dict[str, Any], dict[str, tuple[Any, Tensor | None]]]:
    attributes = {n: v for n, v in vars(module).items() if n not in _OWN}
    buffers = {
        n: (
            b,
            b.detach().clone()
            if b is not None and not b.is_meta and b.numel() < _LARGEST
            else None,
        )
        for n, b in module._buffers.items()
    }
    return attributes, buffers


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8)) if a.dim() else torch.equal(a, b)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[State]:
    """Within it the model is in eval mode and makes no graphs; afterwards it is as before."""
    training = [(module, module.training) for module in model.modules()]
    state = State(model)
    try:
        model.eval()
        with torch.no_grad():
            yield state
    finally:
        with torch.no_grad():
            state.restore()
        for module, before in training:
            module.training = before
