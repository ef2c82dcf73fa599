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
    probe had cannot go wrong; where they differ the place is left to the model. Later ones whose
    tables are of a kind that no probe had go to the model's own function.

    ``partial``: whether the function takes tables that are narrower than heads; None while a form
    is on trial, which then answers for every call.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        roles: Roles,
        form: Form,
        axis: int | str | None,
        bare: bool = False,
        partial: bool | None = None,
    ):
        wraps(function)(self)
        self.function, self.roles, self.form, self.axis = function, roles, form, axis
        self.bare, self.partial = bare, partial

    def __call__(self, *args: Any, **given: Any) -> Any:
        """The rotated tensors, as the model's function returns them."""
        place, name = here(), self.function.__name__
        if place is not None and place.forgoes(name):
            return self.function(*args, **given)
        bound = self.roles.bind(args, given)
        if place is not None and place.instead is not None:
            return self._packed(place.instead(self._applied(bound)), bound)
        if place is None or name in place.agreed:
            return self._turned(bound) if self._fits(bound) else self.function(*args, **given)
        tensors = [value for value in bound.values() if isinstance(value, Tensor)]
        return compared(
            place,
            name,
            tensors,
            bound[self.roles.tables[-1]],
            lambda: self._turned(bound),
            lambda: self.function(*args, **given),
        )

    def _fits(self, bound: dict[str, Any]) -> bool:
        """Whether the tables are as the form has them, and as wide as the function takes them."""
        if self.partial is None:
            return True
        tables = [bound[name] for name in self.roles.tables]
        tensors = [x for name in self.roles.tensors if (x := bound[name]) is not None]
        if not all(isinstance(t, Tensor) and t.dim() for t in (*tables, *tensors)):
            return False
        first, last = tables[0], tables[-1]
        real = len(tables) == 2
        if first.shape != last.shape or first.dtype != last.dtype:
            return False
        if not (first.is_floating_point() if real else first.is_complex()):
            return False
        lanes = first.shape[-1] * (2 if self.form.tables == "pairs" else 1)
        if lanes % 2:
            return False
        return all(lanes == x.shape[-1] or (self.partial and lanes < x.shape[-1]) for x in tensors)

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

    The place then trusts ``name``, if the angles were any but 0, or is left. Autograd sees only the
    form that is kept, because a checkpoint runs that one again and counts what was saved.
    """
    if not all(readable(t) for t in tensors):
        return ours()
    with torch.no_grad():
        wanted = theirs()
        try:
            reason = _difference(ours(), wanted)
        except (RuntimeError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
    if reason is not None:
        reason = f"{name} of the model gives other results than its form: {reason}"
    if reason is not None or place.left is not None:
        place.leave(name, reason)
        return theirs()
    if (sine.imag if sine.is_complex() else sine).any():
        place.found |= {name}
    return ours()


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
