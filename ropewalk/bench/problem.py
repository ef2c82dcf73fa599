"""The numbers of a case, what a right rotation makes of them, and how wrong a result is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from ropewalk.bench.cases import Case
from ropewalk.spectra import Spectrum, exact_angle

_EXACTLY = 64
"""Tokens up to which angles are reduced in rational arithmetic, which is slow."""
_EPSILONS = {torch.float32: 4, torch.float64: 8, torch.bfloat16: 4, torch.float16: 4}
"""Roundings allowed to a form, in epsilons of the largest value."""


@dataclass(frozen=True)
class Problem:
    """Inputs of a case and their float64 results, in the order that a rotor gives them."""

    inputs: tuple[Tensor, ...]
    expected: tuple[Tensor, ...]


def exact_tables(spectrum: Spectrum, positions: Tensor) -> tuple[Tensor, Tensor]:
    """float64 cos and sin ``[tokens, pairs]`` of positions times float64 frequencies.

    The angles of a few tokens are reduced in rational arithmetic; of many, they are float64
    products, off by less than 1e-12 rad below position 4,096.
    """
    return _exact_tables(spectrum, tuple(positions.flatten().tolist()), tuple(positions.shape))


@lru_cache(maxsize=8)
def _exact_tables(
    spectrum: Spectrum, values: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    where = torch.tensor(values).reshape(shape)
    planes = where if len(shape) == 2 else where.unsqueeze(-1)
    (matrix,) = spectrum.matrices
    if planes.shape[0] <= _EXACTLY:
        angles = torch.tensor(
            [
                [
                    sum(exact_angle(p, f) for p, f in zip(token, column, strict=True))
                    for column in zip(*matrix, strict=True)
                ]
                for token in planes.tolist()
            ],
            dtype=torch.float64,
        )
    else:
        angles = planes.double() @ torch.tensor(matrix, dtype=torch.float64)
    return angles.cos(), angles.sin()


def turned(x: Tensor, spectrum: Spectrum, positions: Tensor, backwards: bool = False) -> Tensor:
    """x in float64, turned pair by pair; ``backwards`` gives the gradient of x for that of y."""
    cosine, sine = exact_tables(spectrum, positions)
    sine = -sine if backwards else sine
    first, second = spectrum.lanes
    y = x.to(torch.float64, copy=True)
    u, v = y[..., first].clone(), y[..., second].clone()
    y[..., first] = u * cosine - v * sine
    y[..., second] = u * sine + v * cosine
    return y


def problem(case: Case) -> Problem:
    """Random inputs of a case, always the same, and what they turn into. Not to be written to."""
    alike = case.mode if case.decodes or case.mode == "forward+backward" else "fresh"
    return _problem(replace(case, mode="decode" if case.decodes else alike))


@lru_cache(maxsize=1)
def _problem(case: Case) -> Problem:
    batch, heads, tokens, width = case.shape
    backward = case.mode == "forward+backward"
    shapes = [case.shape]
    if case.decodes:
        shapes.append((batch, max(1, heads // 4), tokens, width))
    elif backward:
        shapes.append(case.shape)
    generator = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(one, generator=generator).to(case.torch_dtype) for one in shapes)
    spectrum, where = case.spectrum(), case.positions()
    expected = tuple(
        turned(x, spectrum, where, backwards=backward and i == 1) for i, x in enumerate(inputs)
    )
    return Problem(inputs, expected)


def error(results: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> float:
    """The largest absolute error over the largest absolute value; nan where a result is.

    Raises:
        ValueError: a result has another shape or dtype family than expected.
    """
    worst = 0.0
    for result, right in zip(results, expected, strict=True):
        if result.shape != right.shape:
            raise ValueError(f"a result of shape {tuple(result.shape)}, not {tuple(right.shape)}")
        scale = max(right.abs().max().item(), 1e-300)
        for a, b in zip(result.detach().unbind(1), right.unbind(1), strict=True):
            found = torch.linalg.vector_norm(a.double().sub_(b), float("inf")).item() / scale
            if not found <= worst:
                worst = found
            if worst != worst:
                return worst
    return worst


def tolerance(dtype: torch.dtype, positions: Tensor, own_angles: bool) -> float:
    """The error up to which a result counts as right.

    Some roundings of its dtype; and for forms that make their own angles, what float32 angles err
    by: a rounding each of frequency and product.
    """
    rounding = _EPSILONS[dtype] * torch.finfo(dtype).eps
    return rounding + (positions.max().item() * 2.0**-22 if own_angles else 0.0)
