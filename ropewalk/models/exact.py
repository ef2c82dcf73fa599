"""Exact phases in place of a model's own cos and sin tables, for models that are trained anew.

A rotary module of transformers multiplies positions by ``inv_freq`` in float32, which errs by
5e-3 rad at position 131,072. Here its frequencies, taken as exact rationals, become integer steps
(:class:`ropewalk.Spectrum`), and its tables come from those. Which frequency and which axis of the
positions each lane gets is read off the module's own tables at small positions.

A model that was trained on float32 angles has learned them with that error, so this changes what it
computes; the report says by how much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.models.columns import Exact, read_off
from ropewalk.models.fused import UNDONE, rebind, replaced

STATE = "_ropewalk_exact"
ORIGINAL = "_ropewalk_with_tables"
_BUFFER = re.compile(r"^(?:(?P<key>.+)_)?inv_freq$")
_BY_LENGTH = ("dynamic", "longrope")


@dataclass
class Table:
    """A rotary module of a model: how far its angles are from exact ones, or why it is left."""

    module: str
    key: str | None
    difference: float | None
    context: int
    reason: str | None = None
    stored: torch.dtype = torch.float32

    def __str__(self) -> str:
        name = self.module + (f" ({self.key})" if self.key else "")
        if self.reason is not None:
            return f"left   tables of {name}: {self.reason}"
        return (
            f"exact  tables of {name}: angles differ by up to {self.difference:.2g} rad "
            f"up to position {self.context - 1}"
            + (f" (inv_freq is stored in {self.stored})" if self.stored.itemsize < 4 else "")
        )


def make_exact(model: nn.Module) -> list[Table]:
    """Let every rotary module of ``model`` take its tables from exact phases."""
    found: list[Table] = []
    for name, module in model.named_modules():
        if STATE in module.__dict__:
            found += module.__dict__[STATE]["tables"]
            continue
        buffers = frequencies(module)
        if not buffers:
            continue
        made, reports = {}, []
        for key, inv_freq in buffers.items():
            exact = exact_tables(module, key, inv_freq)
            reports.append(_report(name, key, module, model, inv_freq, exact))
            if isinstance(exact, Exact):
                made[key] = exact
        if made:
            _take_over(module, made, reports)
        found += reports
    return found or [Table("the model", None, None, 0, "no module in it has an inv_freq")]


def standing(model: nn.Module) -> list[Table]:
    """What :func:`make_exact` has told of the modules that have exact tables now."""
    kept = (module.__dict__.get(STATE) for module in model.modules())
    return [table for state in kept if state is not None for table in state["tables"]]


def _take_over(module: nn.Module, made: dict[str | None, Exact], reports: list[Table]) -> None:
    cls = type(module)
    module.__class__ = exact_class(cls)
    module.__dict__[STATE] = {"exact": made, "tables": reports}
    rebind(module, {_forward(cls): _forward(type(module))})


def restore_tables(module: nn.Module) -> bool:
    """Give a module its own tables back; False if it has them."""
    if STATE not in module.__dict__:
        return False
    exact = type(module)
    cls = module.__class__ = vars(exact)[ORIGINAL]
    for table in module.__dict__.pop(STATE)["tables"]:
        table.reason = table.reason or UNDONE
    rebind(module, {_forward(exact): _forward(cls)})
    return True


def _forward(cls: Any) -> Any:
    return cls.forward


@cache
def exact_class(cls: type) -> type:
    """The subclass of a rotary module whose forward gives exact tables."""
    original = cls.forward  # pyright: ignore[reportAttributeAccessIssue]

    @wraps(original)
    def forward(self: nn.Module, x: Tensor, position_ids: Tensor, layer_type: Any = None) -> Any:
        exact = self.__dict__[STATE]["exact"].get(layer_type)
        if exact is None:
            exact = self.__dict__[STATE]["exact"].get(None)
        if exact is not None:
            return exact(x, position_ids)
        extra = () if layer_type is None else (layer_type,)
        return original(self, x, position_ids, *extra)

    body = {
        "forward": forward,
        ORIGINAL: cls,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__reduce_ex__": lambda self, protocol: (_empty, (cls,), self.__getstate__()),
    }
    return type(cls)(cls.__name__, (cls,), body)


def _empty(cls: type) -> Any:
    made: Any = exact_class(cls)
    return made.__new__(made)


def frequencies(module: nn.Module) -> dict[str | None, Tensor]:
    """The frequency buffers of a rotary module, by layer type."""
    found: dict[str | None, Tensor] = {}
    for name, buffer in module.named_buffers(recurse=False):
        match = _BUFFER.match(name)
        if match and not name.endswith("original_inv_freq"):
            found[match["key"]] = buffer
    return found


def exact_tables(module: nn.Module, key: str | None, inv_freq: Tensor) -> Exact | str:
    """The exact tables that match those of ``module``, or why there are none."""
    kind = getattr(module, "rope_type", None)
    kind = kind.get(key) if isinstance(kind, dict) else kind
    if kind in _BY_LENGTH:
        return f"its frequencies depend on the length (rope_type {kind!r})"
    reason = replaced(module, _forward(type(module)))
    if reason is not None:
        return reason
    if inv_freq.device.type == "meta":
        return "it is on the meta device; load its weights first"
    exact = read_off(module, key, inv_freq)
    if exact is not None:
        return exact
    return "its tables are not cos and sin of position times frequency"


def _report(
    name: str,
    key: str | None,
    module: nn.Module,
    model: nn.Module,
    inv_freq: Tensor,
    exact: Exact | str,
) -> Table:
    context = _context(module, model)
    if isinstance(exact, str):
        return Table(name, key, None, context, exact)
    difference = angle_difference(inv_freq, context)
    return Table(name, key, difference, context, stored=inv_freq.dtype)


def _context(module: nn.Module, model: nn.Module) -> int:
    """The longest sequence that the module's config, or the model's, speaks of."""
    for config in _configs(module, model):
        try:
            length = getattr(config, "max_position_embeddings", None)
        except Exception:
            continue
        if isinstance(length, int) and length > 0:
            return length
    return 4096


def _configs(module: nn.Module, model: nn.Module) -> Iterator[Any]:
    for owner in (module, model):
        config = getattr(owner, "config", None)
        if config is not None:
            yield config
            get = getattr(config, "get_text_config", None)
            if get is not None:
                yield get()


def angle_difference(inv_freq: Tensor, context: int) -> float:
    """Largest difference in radians between float32 angles and exact ones below ``context``.

    Every position is tried up to 65,536, beyond that the last 65,536.
    """
    exact = inv_freq.detach().to("cpu", torch.float64).flatten()
    worst = 0.0
    for start in range(max(0, context - 65536), context, 4096):
        positions = torch.arange(start, min(context, start + 4096))
        rounded = positions[:, None].float() * exact.float()
        true = positions[:, None].double() * exact
        worst = max(worst, (rounded.double() - true).abs().max().item())
    return worst
