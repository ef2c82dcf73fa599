"""The forms in which models apply rotary tables, and each of them as one fused rotation.

A form says which lanes make a pair, how the tables hold the angles, where the rotated lanes lie,
which way they turn and in which dtype the result comes. :mod:`ropewalk.models.recognise` finds the
form of a function by running it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from ropewalk.kernels import rotate_by, rotate_qk_by
from ropewalk.kernels.fused import needs_derivative
from ropewalk.kernels.lanes import join
from ropewalk.kernels.plain import compute_dtype
from ropewalk.models.places import Place, here


@dataclass(frozen=True)
class Form:
    """One way of writing ``x·cos + rotated(x)·sin``.

    layout      the pairs of lanes: ``"half"`` (i, i+n) or ``"interleaved"`` (2i, 2i+1)
    tables      ``"pairs"``: one angle a pair; ``"both"``: two copies, both read;
                ``"first"``: two copies, the first half of the lanes read
    order       ``"kept"``, or ``"sorted"``: interleaved lanes come out in half order
    side        the rotated lanes ``"leading"`` or ``"trailing"``, if the tables are narrower
    sign        1, or −1 for the opposite turn
    dtype       of the result: ``"input"``, or ``"promoted"`` with the tables' dtype
    """

    layout: str
    tables: str
    order: str = "kept"
    side: str = "leading"
    sign: int = 1
    dtype: str = "input"

    @property
    def side_by_side(self) -> bool:
        """Whether the copies of an angle are neighbours: tables go with the lanes they multiply."""
        return self.tables == "both" and self.layout == "interleaved" and self.order == "kept"

    def __str__(self) -> str:
        words = [self.layout]
        words += ["reordered"] if self.order == "sorted" else []
        words += ["trailing lanes"] if self.side == "trailing" else []
        words += ["opposite turn"] if self.sign < 0 else []
        return ", ".join(words)


def shapes() -> Iterator[Form]:
    """Every form but for the dtype of the result, the usual ones first."""
    for layout, tables, sign, side in product(
        ("half", "interleaved"), ("both", "pairs", "first"), (1, -1), ("leading", "trailing")
    ):
        for order in ("kept", "sorted") if layout == "interleaved" else ("kept",):
            yield Form(layout, tables, order, side, sign)


def turned(
    tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor, form: Form, function: str
) -> tuple[Tensor, ...]:
    """The tensors, each rotated as ``form`` says.

    Args:
        tensors: real floating tensors with any dimensions before their lanes.
        cos, sin: tables whose dimensions before the last broadcast over those of the tensors.
        form: how the model writes it.
        function: the model's function, by which a place remembers that the copies agree.
    """
    if form.sign < 0:
        sin = -sin
    tensors = tuple(_grown(_promoted(x, cos, form), cos) for x in tensors)
    place = here()
    if place is not None and place.layout is not None:
        cos, sin = first_copy(cos, form), first_copy(sin, form)
        form = replace(form, layout=place.layout, tables="pairs", order="kept")
    pairs = cos.shape[-1] if form.tables == "pairs" else cos.shape[-1] // 2
    if form.tables != "both" or (place is not None and _trusted(place, cos, sin, form, function)):
        results = _by_pairs(tensors, first_copy(cos, form), first_copy(sin, form), form)
    else:
        results = tuple(_by_both_copies(x, cos, sin, form) for x in tensors)
    if form.order == "sorted":
        return tuple(_sorted(x, _offset(x, pairs, form), pairs) for x in results)
    return results


def _promoted(x: Tensor, table: Tensor, form: Form) -> Tensor:
    if form.dtype == "input" or x.dtype == table.dtype:
        return x
    return x.to(torch.promote_types(x.dtype, table.dtype))


def _grown(x: Tensor, table: Tensor) -> Tensor:
    """x expanded where a table has more rows or dimensions, as products expand."""
    own, rows = x.shape[:-1], table.shape[:-1]
    more = len(own) - len(rows)
    if more < 0:
        return x.expand(*torch.broadcast_shapes(own, rows), x.shape[-1])
    for i, n in enumerate(rows):
        if n != 1 and n != own[more + i]:
            return x.expand(*torch.broadcast_shapes(own, rows), x.shape[-1])
    return x


def _offset(x: Tensor, pairs: int, form: Form) -> int:
    """The first rotated lane of x."""
    return x.shape[-1] - 2 * pairs if form.side == "trailing" else 0


def pair_lanes(width: int, pairs: int, form: Form) -> tuple[slice, slice]:
    """The first and the second lanes of all pairs, in heads of ``width`` lanes."""
    start = width - 2 * pairs if form.side == "trailing" else 0
    middle, end = start + pairs, start + 2 * pairs
    if form.layout == "interleaved":
        return slice(start, end, 2), slice(start + 1, end, 2)
    return slice(start, middle), slice(middle, end)


def first_copy(table: Tensor, form: Form) -> Tensor:
    """One angle a pair."""
    if form.tables == "pairs":
        return table
    if form.side_by_side:
        return table[..., 0::2]
    return table[..., : table.shape[-1] // 2]


def both_copies(table: Tensor, form: Form) -> Tensor:
    """A table of one angle a pair as ``form`` has it."""
    if form.tables == "pairs":
        return table
    return table.repeat_interleave(2, -1) if form.side_by_side else torch.cat((table, table), -1)


def _second(table: Tensor, form: Form) -> Tensor:
    """The other copy of each angle, in tables of both."""
    return table[..., 1::2] if form.side_by_side else table[..., table.shape[-1] // 2 :]


def _trusted(place: Place, cos: Tensor, sin: Tensor, form: Form, function: str) -> bool:
    """Whether the first copy of each angle may stand for both: they agree, and so do gradients."""
    agree = function in place.agreed or place.compares(
        function, tuple((first_copy(t, form), _second(t, form)) for t in (cos, sin))
    )
    return agree and not (needs_derivative(cos) or needs_derivative(sin))


def _by_both_copies(x: Tensor, cos: Tensor, sin: Tensor, form: Form) -> Tensor:
    """x rotated by tables whose copies may differ, in plain arithmetic."""
    wide = compute_dtype(x.dtype)
    (c1, c2), (s1, s2) = ((first_copy(t, form), _second(t, form)) for t in (cos, sin))
    lanes = pair_lanes(x.shape[-1], c1.shape[-1], form)
    first, second = x[..., lanes[0]].to(wide), x[..., lanes[1]].to(wide)
    c1, c2, s1, s2 = (t.to(wide) for t in (c1, c2, s1, s2))
    return join(x, first * c1 - second * s1, second * c2 + first * s2, lanes)


def _by_pairs(
    tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor, form: Form
) -> tuple[Tensor, ...]:
    """The fused rotation, whose tokens lie along the last dimension but one, before the lanes."""
    x, *more = tensors
    if any(t.dim() != x.dim() or t.shape[-1] != x.shape[-1] for t in more):
        return tuple(y for t in tensors for y in _by_pairs((t,), cos, sin, form))
    if cos.dim() not in (2, x.dim()):
        missing = (None,) * (x.dim() - cos.dim())
        cos, sin = cos[missing], sin[missing]
    offset = _offset(x, cos.shape[-1], form)
    swapped = cos.dim() > 2 and cos.shape[-2] == 1 and x.shape[-2] != 1
    if swapped:
        cos, sin = cos.transpose(-2, -3), sin.transpose(-2, -3)
        tensors = tuple(t.transpose(-2, -3) for t in tensors)
    if len(tensors) == 2:
        results = rotate_qk_by(*tensors, cos, sin, layout=form.layout, lane_offset=offset)
    else:
        results = tuple(
            rotate_by(t, cos, sin, layout=form.layout, lane_offset=offset) for t in tensors
        )
    return tuple(t.transpose(-2, -3) for t in results) if swapped else results


def _sorted(x: Tensor, offset: int, pairs: int) -> Tensor:
    """The interleaved lanes from ``offset`` on in half order."""
    lanes = x[..., offset : offset + 2 * pairs]
    parts = [x[..., :offset], lanes[..., 0::2], lanes[..., 1::2], x[..., offset + 2 * pairs :]]
    return torch.cat([part for part in parts if part.shape[-1]], dim=-1)
