"""A model's rotary tables made otherwise while it runs: exactly, or in bfloat16 at some point.

What the angle p·f of position p and frequency f goes through::

    own                          float32(p) · float32(f)              cos, sin in float32
    exact phases                 p · f without rounding               cos, sin in float32
    cos and sin in bfloat16      float32(p) · float32(f)              cos, sin rounded to bfloat16
    inv_freq in bfloat16         float32(p) · bfloat16(f)             cos, sin in float32
    angles in bfloat16           bfloat16(bfloat16(p) · bfloat16(f))  cos, sin rounded to bfloat16

f are the frequencies that the model holds, so exact phases leave them as they are. The third is
what ``.to(bfloat16)`` makes of a buffer, the last what tables built in the model's dtype are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.models.columns import Exact
from ropewalk.models.exact import exact_tables, frequencies

NARROW = torch.bfloat16


@dataclass(frozen=True)
class Call:
    """One call of a rotary module: its exact tables, its arguments, and what it returned."""

    exact: Exact
    x: Tensor
    positions: Tensor
    own: Any


@dataclass(frozen=True)
class Maker:
    """A rotary module, and its exact tables by layer type."""

    module: nn.Module
    exact: dict[str | None, Exact]


def makers(model: nn.Module) -> list[Maker]:
    """The rotary modules of a model.

    Raises:
        ValueError: there are none, or one makes its tables in a way that is not understood.
    """
    found = []
    for name, module in model.named_modules():
        exact: dict[str | None, Exact] = {}
        for key, inv_freq in frequencies(module).items():
            tables = exact_tables(module, key, inv_freq)
            if isinstance(tables, str):
                raise ValueError(f"the tables of {name} cannot be made otherwise: {tables}")
            exact[key] = tables
        if exact:
            found.append(Maker(module, exact))
    if not found:
        raise ValueError("the tables cannot be made otherwise: no module of it holds an inv_freq")
    return found


@contextmanager
def made_otherwise(made: list[Maker], how: str) -> Iterator[None]:
    """Within it the modules' tables are those of ``how``, a key of ``TABLES``.

    Raises:
        ValueError: how is unknown.
    """
    if how not in TABLES:
        raise ValueError(f"how={how!r} is unknown; use one of {', '.join(TABLES)}")
    with ExitStack() as stack:
        for maker in made:
            stack.enter_context(TABLES[how](maker))
        yield


@contextmanager
def _own(_: Maker) -> Iterator[None]:
    yield


@contextmanager
def _rounded_frequencies(maker: Maker) -> Iterator[None]:
    buffers = list(frequencies(maker.module).values())
    kept = [buffer.clone() for buffer in buffers]
    try:
        for buffer in buffers:
            buffer.copy_(buffer.to(NARROW))
        yield
    finally:
        for buffer, before in zip(buffers, kept, strict=True):
            buffer.copy_(before)


def _returning(tables: Callable[[Call], Any]) -> Callable[[Maker], Any]:
    """Modules whose forward returns other tables."""

    @contextmanager
    def treatment(maker: Maker) -> Iterator[None]:
        def hook(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any], own: Any) -> Any:
            x, positions, kind = _arguments(*args, **given)
            exact = maker.exact[kind if kind in maker.exact else None]
            return tables(Call(exact, x, positions, own))

        handle = maker.module.register_forward_hook(hook, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    return treatment


def _arguments(
    x: Tensor, position_ids: Tensor, layer_type: str | None = None
) -> tuple[Tensor, Tensor, str | None]:
    """The arguments of a rotary module, by the names that transformers gives them."""
    return x, position_ids, layer_type


def _exact(call: Call) -> Any:
    return call.exact(call.x, call.positions)


def _rounded(call: Call) -> Any:
    return _narrowed(call.own)


def _narrowed(tables: Any) -> Any:
    if isinstance(tables, tuple):
        return tuple(_narrowed(table) for table in tables)
    if tables.is_complex():
        return torch.view_as_complex(_narrowed(torch.view_as_real(tables)))
    return tables.to(NARROW).to(tables.dtype)


def _by_narrow_angles(call: Call) -> Any:
    spectrum = call.exact.spectrum
    freqs = torch.tensor(spectrum.freqs, dtype=torch.float64, device=call.positions.device)
    where = call.exact.by_axis(call.positions).to(NARROW)
    where = where[..., None] if spectrum.axes == 1 else where
    # a pair turns by one axis of text and pictures, so the sum over axes rounds nothing
    angles = (where[..., None] * freqs.to(NARROW)).sum(-2)
    cos, sin = (_narrowed(t * spectrum.attention_factor) for t in (angles.cos(), angles.sin()))
    return call.exact.returned(call.x, cos.float(), sin.float())


TABLES: dict[str, Callable[[Maker], Any]] = {
    "own": _own,
    "exact phases": _returning(_exact),
    "cos and sin in bfloat16": _returning(_rounded),
    "inv_freq in bfloat16": _rounded_frequencies,
    "angles in bfloat16": _returning(_by_narrow_angles),
}
