"""A model's rotary function, computed by ropewalk."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from ropewalk.models.applied import Applied
from ropewalk.models.forms import Form, turned
from ropewalk.models.places import Place, here, readable
from ropewalk.models.roles import Roles

SECOND = "second"
"""Instead of a place for a head dimension: the tables' tokens are those of the second dimension."""
_ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""By how much of the largest value a result may differ from the model's, for rounding alone."""


class Rotation:
    """A rotary function with its form: called as that function is.

    Its first call at a place is compared with the model's own function, so that shapes which no
    probe had cannot go wrong; where they differ the place is left to the model.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        roles: Roles,
        form: Form,
        axis: int | str | None,
        bare: bool = False,
    ):
        wraps(function)(self)
        self.function, self.roles, self.form, self.axis = function, roles, form, axis
        self.bare = bare

    def __call__(self, *args: Any, **given: Any) -> Any:
        """The rotated tensors, as the model's function returns them."""
        place, name = here(), self.function.__name__
        bound = self.roles.bind(args, given)
        if place is not None and place.instead is not None:
            return self._packed(place.instead(self._applied(bound)), bound)
        if place is None or name in place.agreed:
            return self._turned(bound)
        tensors = [value for value in bound.values() if isinstance(value, Tensor)]
        return compared(
            place,
            name,
            tensors,
            bound[self.roles.tables[-1]],
            lambda: self._turned(bound),
            lambda: self.function(*args, **given),
        )

    def _turned(self, bound: dict[str, Any]) -> Any:
        tensors, cos, sin = self._read(bound)
        return self._packed(turned(tensors, cos, sin, self.form, self.function.__name__), bound)

    def _applied(self, bound: dict[str, Any]) -> Applied:
        """The call, to be answered by the model's own function."""
        roles = self.roles

        def own(tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
            rest, again = iter(tensors), dict(bound)
            again |= {n: next(rest) for n in roles.tensors if bound[n] is not None}
            tables = (cos, sin) if len(roles.tables) == 2 else (torch.complex(cos, sin),)
            for name, table in zip(roles.tables, tables, strict=True):
                again[name] = table.reshape(bound[name].shape)
            results = self.function(**again)
            results = results if isinstance(results, tuple) else (results,)
            return tuple(y for y in results if y is not None)

        return Applied.at(here(), *self._read(bound), self.form, self.function.__name__, own)

    def _read(self, bound: dict[str, Any]) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """Tensors, cos and sin of a call, such that the tables broadcast over the tensors."""
        roles = self.roles
        axis = self.axis if roles.axis is None else bound[roles.axis]
        tables = [bound[name] for name in roles.tables]
        cos, sin = tables if len(tables) == 2 else (tables[0].real, tables[0].imag)
        tensors = tuple(x for n in roles.tensors if (x := bound[n]) is not None)
        if axis == SECOND:
            x = tensors[0]
            shape = (x.shape[1], *(1,) * (x.dim() - 3), cos.shape[-1])
            cos, sin = cos.reshape(shape), sin.reshape(shape)
        elif axis is not None:
            cos, sin = cos.unsqueeze(axis), sin.unsqueeze(axis)
        return tensors, cos, sin

    def _packed(self, results: tuple[Tensor, ...], bound: dict[str, Any]) -> Any:
        """Results as the function returns them."""
        roles = self.roles
        if len(roles.tensors) == 1 or (self.bare and len(results) == 1):
            (alone,) = results
            return alone
        rest = iter(results)
        return tuple(None if bound[name] is None else next(rest) for name in roles.tensors)

    def __repr__(self) -> str:
        return f"<ropewalk for {self.function.__qualname__}: {self.form}>"

    def __reduce__(self) -> Any:
        return _again, (self.function,)

    def __deepcopy__(self, memo: Any) -> Rotation:
        return self


def compared(
    place: Place,
    name: str,
    tensors: list[Tensor],
    sine: Tensor,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
) -> Any:
    """The result of a first call: ours if it is the model's but for rounding, else the model's.

    The place then trusts ``name``, if the angles were any but 0, or is left.
    """
    if not all(readable(t) for t in tensors):
        return ours()
    with torch.no_grad():
        wanted = theirs()
    try:
        found = ours()
        reason = _difference(found, wanted)
    except (RuntimeError, TypeError, ValueError) as error:
        found, reason = None, f"{type(error).__name__}: {error}"
    if reason is not None:
        place.agreed.discard(name)
        place.left = f"{name} of the model gives other results than its form: {reason}"
        return theirs()
    if place.left is None and (sine.imag if sine.is_complex() else sine).any():
        place.agreed.add(name)
    return found


def _again(function: Callable[..., Any]) -> Any:
    from ropewalk.models.recognise import recognised

    return recognised(function)


def _difference(found: Any, wanted: Any) -> str | None:
    """How two results of a rotary function differ by more than rounding, if they do."""
    ours, theirs = (r if isinstance(r, tuple) else (r,) for r in (found, wanted))
    if len(ours) != len(theirs):
        return f"{len(ours)} results and not {len(theirs)}"
    for mine, own in zip(ours, theirs, strict=True):
        if own is None or mine is None:
            if own is not mine:
                return "None where a tensor is wanted, or the other way round"
        elif mine.shape != own.shape or mine.dtype != own.dtype:
            return f"{mine.dtype} {tuple(mine.shape)} and not {own.dtype} {tuple(own.shape)}"
        elif own.numel():
            scale = own.detach().double().abs().nan_to_num(0, 0, 0).max().item()
            worst = (mine.detach().double() - own.double()).abs().nan_to_num(0, 0, 0).max().item()
            if worst > _ROUNDING[own.dtype] * scale:
                return f"they differ by up to {worst:.3g} of {scale:.3g}"
    return None
