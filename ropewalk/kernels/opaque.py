"""Operators that compilers do not see into.

Registered directly with the dispatcher: ``torch.library.custom_op`` would load the whole compiler
at the first call, two seconds in every process that rotates anything.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import register_decomposition

_library = torch.library.Library("ropewalk", "FRAGMENT")
_decompositions: dict[torch._ops.OpOverload, Callable[..., Any]] = {}


def decomposes(operator: torch._ops.OpOverload) -> Callable[[Callable[..., Any]], Any]:
    """Register the decorated function as what exporters may put in place of ``operator``.

    ``torch.onnx.export`` finds it by itself in PyTorch's table. Inductor and
    ``ExportedProgram.run_decompositions()`` do not look there: for them the operator stays whole.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _decompositions[operator] = function
        return register_decomposition(operator)(function)

    return register


def decompositions() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """What each operator of ropewalk consists of, for runtimes that do not have it.

    ``program.run_decompositions({**torch.export.default_decompositions(), **decompositions()})``
    leaves PyTorch's own operators only, and the same bits.
    """
    return dict(_decompositions)


def _whole(name: str, fake: Callable[..., Any]) -> Callable[..., Any]:
    """``fake``, which also tells Inductor that the operator stays whole though it decomposes.

    Where the variable ``CI`` is set, Inductor takes a decomposition it does not use for its own
    developers' oversight and refuses to compile, except for operators on this list. The list lies
    in a module that takes two seconds to load; shapes are asked for after Inductor loaded it.
    """

    @functools.wraps(fake)
    def shapes(*args: Any, **kwargs: Any) -> Any:
        lowering = sys.modules.get("torch._inductor.lowering")
        getattr(lowering, "FALLBACK_ALLOW_LIST", set()).add(f"ropewalk::{name}")
        return fake(*args, **kwargs)

    return shapes


def opaque(
    schema: str,
    *,
    fake: Callable[..., Any],
    vmap: Callable[..., Any] | None = None,
    backward: tuple[Callable[..., None], Callable[..., Any]] | None = None,
):
    """Register the decorated function as the operator ``ropewalk::<schema>``.

    Args:
        schema: ``name(Tensor x, …) -> …``, without aliasing or mutation.
        fake: shapes and dtypes of the results, for compilers and fake tensors.
        vmap: makes the rule of ``torch.vmap`` from the operator.
        backward: what is kept of (context, inputs, output), and the gradients of the inputs from
            (context, gradient); none if None.

    Returns:
        A decorator that returns the operator.
    """
    name = schema.partition("(")[0]

    def register(function: Callable[..., Any]) -> torch._ops.OpOverload:
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"ropewalk::{name}", _whole(name, fake), lib=_library)
        operator = getattr(torch.ops.ropewalk, name).default
        if vmap is not None:
            torch.library.register_vmap(f"ropewalk::{name}", vmap(operator), lib=_library)
        if backward is not None:
            keep, gradients = backward
            torch.library.register_autograd(
                f"ropewalk::{name}", gradients, setup_context=keep, lib=_library
            )
        return operator

    return register


def mutating(schema: str):
    """Register the decorated function as an operator that writes its arguments and returns nothing.

    Args:
        schema: ``name(Tensor x, Tensor(a!) out, …) -> ()``. It has no derivative.

    Returns:
        A decorator that returns the operator.
    """
    name = schema.partition("(")[0]

    def register(function: Callable[..., Any]) -> torch._ops.OpOverload:
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"ropewalk::{name}", lambda *_: None, lib=_library)
        return getattr(torch.ops.ropewalk, name).default

    return register
