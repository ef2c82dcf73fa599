"""One rotation that a model is about to apply, for those who look at it or change it on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from ropewalk.models.forms import Form, first_copy, turned
from ropewalk.models.places import Place, here

Own = Callable[[tuple[Tensor, ...], Tensor, Tensor], tuple[Tensor, ...]]
"""From tensors, cos and sin to the rotated tensors, as the model computes them."""


@dataclass(frozen=True)
class Applied:
    """A call of a rotary function.

    tensors     what is rotated, before it is: q, k, both, or more
    cos, sin    tables as ``form`` has them, broadcasting over the tensors
    form        the writing of the rotation
    function    its name in the model
    own         goes on: with these tensors and tables, or others of the same shapes
    """

    tensors: tuple[Tensor, ...]
    cos: Tensor
    sin: Tensor
    form: Form
    function: str
    own: Own

    @staticmethod
    def at(
        place: Place | None,
        tensors: tuple[Tensor, ...],
        cos: Tensor,
        sin: Tensor,
        form: Form,
        function: str,
        own: Own | None = None,
    ) -> Applied:
        """The call at ``place``; without ``own``, or with converted weights, by ropewalk."""
        if place is not None and place.layout is not None:
            cos, sin = first_copy(cos, form), first_copy(sin, form)
            form, own = replace(form, layout=place.layout, tables="pairs", order="kept"), None
        through = partial(turned, form=form, function=function) if own is None else own
        return Applied(tensors, cos, sin, form, function, through)


def applied(
    tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor, form: Form, function: str
) -> tuple[Tensor, ...]:
    """:func:`turned`, unless the place answers instead."""
    place = here()
    if place is None or place.instead is None:
        return turned(tensors, cos, sin, form, function)
    return place.instead(Applied.at(place, tensors, cos, sin, form, function))
