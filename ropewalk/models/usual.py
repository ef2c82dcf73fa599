"""The call that nearly every model makes, handed to the kernel with as little Python as can be.

It rotates q and k ``[batch, heads, tokens, head_dim]`` by tables ``[batch, tokens, rotary_dim]`` of
two copies that are known to agree. It comes once a layer, and between two of them a decode step
reads whole layers of weights, so that code is no longer in the caches when it runs again: each line
costs ten times what it costs in a loop. What can be decided from the function alone is decided
before, the shapes are left to the kernel to check, and what it does not take goes the way of
:class:`ropewalk.models.rotation.Rotation`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor

from ropewalk.kernels import fused
from ropewalk.models.places import Place, at
from ropewalk.models.rotation import Rotation
from ropewalk.spectra.lanes import number, pair_slices


@cache
def straight(rotation: Rotation) -> Callable[..., Any] | None:
    """``rotation`` where its tables are known to agree; None if its calls are not the usual ones.

    The function that is returned is called as the model's is, outside any place.
    """
    form, promoted = rotation.form, rotation.form.dtype == "promoted"
    partial = bool(rotation.partial)
    settled = Place(agreed={rotation.function.__name__})
    if not _is_usual(rotation):
        return None

    def turned(*args: Any, **given: Any) -> Any:
        if len(args) == 4 and not given:
            q, k, cos, sin = args
            if (
                type(q) is type(cos) is Tensor
                and q.dim() == 4
                and cos.dim() == 3
                and (not promoted or q.dtype == k.dtype == cos.dtype)
            ):
                lanes = _lanes(q.shape[-1], cos.shape[-1], form.layout, partial)
                result = None if lanes is None else fused.two_by(q, k, cos, sin, lanes)
                if result is not None:
                    return result
        with at(settled):
            return rotation(*args, **given)

    return turned


def _is_usual(rotation: Rotation) -> bool:
    """Whether calls may be ``(q, k, cos, sin)``, heads before tokens, tables without heads."""
    roles, form = rotation.roles, rotation.form
    axis = rotation.axis if roles.axis is None else dict(roles.defaults).get(roles.axis)
    return (
        axis == 1
        and len(roles.tensors) == len(roles.tables) == 2
        and roles.names[:4] == (*roles.tensors, *roles.tables)
        and (form.tables, form.order, form.side, form.sign) == ("both", "kept", "leading", 1)
    )


@cache
def _lanes(head_dim: int, width: int, layout: str, partial: bool) -> int | None:
    """The lanes as the kernel's number, where tables ``width`` wide fit a head."""
    if width % 2 or width > head_dim or (width < head_dim and not partial):
        return None
    return number(pair_slices(head_dim, width // 2, layout, 0, "standard"), twice=True)
