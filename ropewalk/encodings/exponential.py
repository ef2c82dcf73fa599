r"""The exponential of many small matrices, each by itself, differentiable to any order.

.. math:: e^A = I + X_s, \qquad X_0 = e^{A/2^s} - I \text{ by its series}, \qquad
          X_{n+1} = 2X_n + X_n^2

What differs from the identity is doubled, not the whole: small parts keep their digits, so that
a matrix may be halved more often than it needs. Each gets the s of its own size; results do not
depend on its neighbours. The derivative is the corner of an exponential twice as wide,

.. math:: \exp\begin{pmatrix} A & E \\ 0 & A \end{pmatrix} =
          \begin{pmatrix} e^A & L(A, E) \\ 0 & e^A \end{pmatrix},

and that in the other direction is :math:`L(A^\top, G)`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk.kernels.opaque import opaque

_DEGREE = 12
"""Of the series: with rows of at most ¼, what is left out is 1e-17 of X_0."""
_ENTRIES = 1 << 16
"""Entries worked on at once on a CPU: half a MiB, which its caches hold."""
_MOST = 1000
"""Halvings; an exponent that would need more has overflowed."""


def exponential(exponent: Tensor) -> Tensor:
    """exp of float64 ``[..., n, n]``."""
    return _by(exponent, False)


def rotations(exponent: Tensor) -> Tensor:
    """exp of skew-symmetric float64 ``[..., n, n]``, orthogonal to its last bits however large."""
    return _by(exponent, True)


def _by(exponent: Tensor, skew: bool) -> Tensor:
    if torch.compiler.is_compiling():  # which knows no functions with forward mode
        return exponential_op(exponent, skew)
    return _Exponential.apply(exponent, skew)


def _keep(ctx: Any, inputs: tuple[Tensor, bool], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    (exponent,) = ctx.saved_tensors
    return _derivative(exponent.transpose(-1, -2), gradient), None


class _Exponential(torch.autograd.Function):
    """The operator with forward mode too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(exponent: Tensor, skew: bool) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return exponential_op(exponent, skew)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, bool], output: Tensor) -> None:
        _keep(ctx, inputs, output)
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _backward(ctx, gradient)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (exponent,) = ctx.saved_tensors
        return _derivative(exponent, tangent)


def _derivative(exponent: Tensor, direction: Tensor) -> Tensor:
    """L: the derivative of exp at ``exponent`` in ``direction``."""
    n = exponent.shape[-1]
    upper = torch.cat((exponent, direction), dim=-1)
    lower = functional.pad(exponent, (n, 0))
    return exponential(torch.cat((upper, lower), dim=-2))[..., :n, n:].contiguous()


def _like(exponent: Tensor, skew: bool) -> Tensor:
    return torch.empty_like(exponent, memory_format=torch.contiguous_format)


def _batched(op):
    def rule(info, in_dims, exponent, skew):
        return op(exponent.movedim(in_dims[0], 0), skew), 0

    return rule


@opaque(
    "exponential(Tensor exponent, bool skew) -> Tensor",
    fake=_like,
    vmap=_batched,
    backward=(_keep, _backward),
)
def exponential_op(exponent: Tensor, skew: bool) -> Tensor:
    """A run of matrices after another, each while it is in the cache."""
    n = exponent.shape[-1]
    flat = exponent.reshape(-1, n, n)
    result = torch.empty_like(flat, memory_format=torch.contiguous_format)
    run = max(_ENTRIES // n**2, 1) if flat.device.type == "cpu" else max(len(flat), 1)
    for start in range(0, len(flat), run):
        result[start : start + run] = _run(flat[start : start + run], skew)
    return result.reshape(exponent.shape)


def _run(exponent: Tensor, skew: bool) -> Tensor:
    halvings = _halvings(exponent)
    halvings, order = halvings.sort(descending=True, stable=True)
    power = ((1023 - halvings) << 52).view(torch.float64)  # 2^−halvings, exactly
    moved = _series(exponent[order] * power[:, None, None])
    doubled = torch.empty_like(moved)
    for ready in halvings.bincount().tolist():  # the last ones need the fewest doublings
        left = len(moved) - ready
        doubled[left : len(moved)] = moved[left:]
        moved = moved[:left]
        moved = torch.baddbmm(moved, moved, moved, beta=2.0)
    doubled.diagonal(dim1=-2, dim2=-1).add_(1.0)
    if skew:
        for _ in range(3):  # Newton–Schulz: an error ε of orthogonality becomes ε²
            square = torch.bmm(doubled.transpose(-1, -2), doubled)
            doubled = torch.baddbmm(doubled, doubled, square, beta=1.5, alpha=-0.5)
    result = torch.empty_like(doubled)
    result[order] = doubled
    return result


def _halvings(exponent: Tensor) -> Tensor:
    """How often each matrix is halved until its rows add up to ¼ at most; int64."""
    size = exponent.abs().sum(-1).amax(-1)
    _, binary = torch.frexp(torch.where(size.isfinite(), size, 0.0))
    return (binary + 2).clamp(0, _MOST).to(torch.int64)


def _series(x: Tensor) -> Tensor:
    """e^x − I up to degree 12, three terms at a time, nested by x³."""
    square = torch.bmm(x, x)
    cube = torch.bmm(square, x)
    terms = [1 / math.factorial(n) for n in range(_DEGREE + 1)]

    def part(first: int) -> Tensor:
        """Of three neighbouring terms, ÷ x^first; that of e^x − I begins with 0."""
        low = x * terms[first + 1] + square * terms[first + 2]
        if first:
            low.diagonal(dim1=-2, dim2=-1).add_(terms[first])
        return low

    total = cube * terms[_DEGREE] + part(9)
    for first in (6, 3, 0):
        total = torch.baddbmm(part(first), total, cube)
    return total
