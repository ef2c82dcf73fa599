"""The forms in which models apply rotary tables, and each of them as one fused rotation.

A form says which lanes make a pair, how the tables hold the angles, where the rotated lanes lie,
which way they turn and in which dtype the result comes. :mod:`ropewalk.models.recognise` finds the
form of a function by running it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from ropewalk.kernels import rotate_by
from ropewalk.kernels.lanes import join, pair_slices
from ropewalk.kernels.plain import compute_dtype
from ropewalk.models.places import here


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


def turned(x: Tensor, cos: Tensor, sin: Tensor, form: Form, function: str) -> Tensor:
    """x rotated as ``form`` says.

    Args:
        x: a real floating tensor with any dimensions before its lanes.
        cos, sin: tables whose dimensions before the last broadcast over those of x.
        form: how the model writes it.
        function: the model's function, by which a place remembers that the copies agree.
    """
    if form.dtype == "promoted":
        x = x.to(torch.promote_types(x.dtype, cos.dtype))
    if form.sign < 0:
        sin = -sin
    x = _grown(x, cos)
    cosines, sines = _copies(cos, form), _copies(sin, form)
    pairs = cosines[0].shape[-1]
    offset = x.shape[-1] - 2 * pairs if form.side == "trailing" else 0
    if len(cosines) > 1 and not _agree(cosines, sines, function):
        result = _by_both_copies(x, cosines, sines, form.layout, offset)
    else:
        result = _by_pairs(x, cosines[0], sines[0], form.layout, offset)
    return _sorted(result, offset, pairs) if form.order == "sorted" else result


def _grown(x: Tensor, table: Tensor) -> Tensor:
    """x expanded where a table has more rows or dimensions, as products expand."""
    own, rows = x.shape[:-1], table.shape[:-1]
    if len(rows) <= len(own) and all(
        t == n or t == 1 for t, n in zip(rows[::-1], own[::-1], strict=False)
    ):
        return x
    return x.expand(*torch.broadcast_shapes(own, rows), x.shape[-1])


def _copies(table: Tensor, form: Form) -> tuple[Tensor, ...]:
    if form.tables == "pairs":
        return (table,)
    half = table.shape[-1] // 2
    if form.tables == "first":
        return (table[..., :half],)
    if form.layout == "half":
        return table[..., :half], table[..., half:]
    return table[..., 0::2], table[..., 1::2]


def _agree(cosines: tuple[Tensor, ...], sines: tuple[Tensor, ...], function: str) -> bool:
    place = here()
    if place is None:
        return False
    return place.trusts(function, ((cosines[0], cosines[1]), (sines[0], sines[1])))


def _by_both_copies(
    x: Tensor, cosines: tuple[Tensor, ...], sines: tuple[Tensor, ...], layout: str, offset: int
) -> Tensor:
    wide = compute_dtype(x.dtype)
    lanes = pair_slices(x.shape[-1], cosines[0].shape[-1], layout, offset, "standard")
    first, second = x[..., lanes[0]].to(wide), x[..., lanes[1]].to(wide)
    (c1, c2), (s1, s2) = (tuple(t.to(wide) for t in pair) for pair in (cosines, sines))
    return join(x, first * c1 - second * s1, second * c2 + first * s2, lanes)


def _by_pairs(x: Tensor, cos: Tensor, sin: Tensor, layout: str, offset: int) -> Tensor:
    """rotate_by, whose tables run along the last but one dimension of x or with it."""
    missing = x.dim() - cos.dim()
    if missing and cos.dim() != 2:
        cos, sin = (t[(None,) * missing] for t in (cos, sin))
    if cos.dim() > 2 and cos.shape[-2] == 1 and x.shape[-2] != 1:
        x, cos, sin = (t.transpose(-2, -3) for t in (x, cos, sin))
        return rotate_by(x, cos, sin, layout=layout, lane_offset=offset).transpose(-2, -3)
    return rotate_by(x, cos, sin, layout=layout, lane_offset=offset)


def _sorted(x: Tensor, offset: int, pairs: int) -> Tensor:
    """The interleaved lanes from ``offset`` on in half order."""
    lanes = x[..., offset : offset + 2 * pairs]
    parts = [x[..., :offset], lanes[..., 0::2], lanes[..., 1::2], x[..., offset + 2 * pairs :]]
    return torch.cat([part for part in parts if part.shape[-1]], dim=-1)
