"""One tensor that a model is about to rotate, in one shape whatever shape the model has."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ropewalk.models.applied import Applied
from ropewalk.models.forms import Form, both_copies, first_copy, pair_lanes


@dataclass(frozen=True)
class Turning:
    """A tensor before its rotation, and the tables of the rotation.

    layer       the number of the layer
    role        ``"q"`` or ``"k"``
    x           ``[batch, heads, tokens, lanes]``, of k as many heads as there are of k
    cos, sin    one angle a pair, ``[batch or 1, heads or 1, tokens, pairs]``; times the attention
                factor, if the model multiplies its tables by one
    form        how the model writes the rotation
    """

    layer: int
    role: str
    x: Tensor
    cos: Tensor
    sin: Tensor
    form: Form

    @property
    def lanes(self) -> tuple[slice, slice]:
        """The first and the second lanes of all pairs, before the rotation; others stand."""
        return pair_lanes(self.x.shape[-1], self.cos.shape[-1], self.form)

    @property
    def lanes_after(self) -> tuple[slice, slice]:
        """Those of the rotated tensor, which some models sort into halves."""
        form = replace(self.form, layout="half") if self.form.order == "sorted" else self.form
        return pair_lanes(self.x.shape[-1], self.cos.shape[-1], form)

    def changed(
        self, *, x: Tensor | None = None, cos: Tensor | None = None, sin: Tensor | None = None
    ) -> Turning:
        """With other values or tables of the same shapes."""
        new = {"x": x, "cos": cos, "sin": sin}
        return replace(self, **{name: t for name, t in new.items() if t is not None})


def canonical(call: Applied, x: Tensor, layer: int, role: str) -> Turning:
    """``x`` of a call as :class:`Turning` has it; views where that is possible."""
    cos, sin = (_table(first_copy(t, call.form), x) for t in (call.cos, call.sin))
    return Turning(layer, role, _heads_first(x, _tokens_first(call, x)), cos, sin, call.form)


def restored(call: Applied, like: Tensor, x: Tensor) -> Tensor:
    """``x`` ``[batch, heads, tokens, lanes]`` in the shape of ``like``."""
    if not _tokens_first(call, like):
        return x.reshape(like.shape).to(like.dtype)
    swapped = like.transpose(-2, -3).shape
    return x.reshape(swapped).transpose(-2, -3).to(like.dtype)


def spoken_tables(call: Applied, old: Turning, new: Turning) -> tuple[Tensor, Tensor]:
    """The tables of a call as the model has them, changed where ``new`` has others than ``old``."""
    pairs = zip((call.cos, call.sin), (old.cos, old.sin), (new.cos, new.sin), strict=True)
    cos, sin = (own if a is b else _spoken(own, b, call.form) for own, a, b in pairs)
    return cos, sin


def _spoken(own: Tensor, table: Tensor, form: Form) -> Tensor:
    rows = own.shape[:-1]
    return both_copies(table, form).reshape(*rows, own.shape[-1]).to(own.dtype)


def _tokens_first(call: Applied, x: Tensor) -> bool:
    """Whether tokens come before heads: then the tables have one row in the place of heads."""
    cos = call.cos
    return cos.dim() > 2 and cos.shape[-2] == 1 and x.shape[-2] != 1


def _heads_first(x: Tensor, swapped: bool) -> Tensor:
    x = x.transpose(-2, -3) if swapped else x
    if x.dim() == 4:
        return x
    if x.dim() == 2:
        return x[None, None]
    return x[None] if x.dim() == 3 else x.flatten(1, -3)


def _table(table: Tensor, x: Tensor) -> Tensor:
    """``[…, tokens, pairs]`` with four dimensions that broadcast over batch and heads."""
    if table.dim() > 2 and table.shape[-2] == 1 and x.shape[-2] != 1:
        table = table.transpose(-2, -3)
    while table.dim() < min(x.dim(), 4) or table.dim() < 4:
        table = table[None]
    if table.dim() > 4:
        inner = torch.Size(table.shape[1:-2])
        if inner.numel() != 1:
            table = table.expand(table.shape[0], *x.shape[1:-2], *table.shape[-2:])
        table = table.flatten(1, -3)
    return table
