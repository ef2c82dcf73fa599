"""The figure of any encoding, drawn from what it does and not from what it is called.

Additive codes by position; wavelengths, where there is a spectrum, and the score by distance of
rotary ones; the bias by distance; and for contextual ones what position adds to the logits of one
query in a seeded sequence.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropewalk.checks import probes
from ropewalk.checks.content import gaussian
from ropewalk.checks.measurement import Unusable
from ropewalk.checks.reach import reach
from ropewalk.checks.shifts import directions
from ropewalk.core import Additive, Bias, Contextual, Encoding, Rotary
from ropewalk.report.figures.panels import Curve, Figure, Heat, Lines, Panel, evenly
from ropewalk.report.figures.wavelengths import wavelengths

POSITIONS, LANES, DISTANCES, SEQUENCE = 64, 32, 128, 96
CURVES, HALF = 8, 4
"""Heads in a panel, and in one of two; of more, so many are shown, evenly chosen."""
STRENGTHS = 17
"""Distances at which the largest score is computed, as singular values are slow."""
STIRRED = 0.3
"""Standard deviation of parameters where an encoding adds nothing as initialised."""


def figure(encoding: Encoding, title: str) -> Figure:
    """What ``encoding`` does, as a figure.

    Raises:
        TypeError: it is no :class:`ropewalk.Encoding`.
        ValueError: it answers with something that cannot be drawn.
    """
    try:
        with torch.no_grad():
            return _figure(copy.deepcopy(encoding), title)
    except Unusable as error:
        raise ValueError(f"{title} cannot be drawn: {error}") from error


def _figure(encoding: Encoding, title: str) -> Figure:
    if isinstance(encoding, Additive):
        panels, caption = _codes(encoding)
        return Figure(title, caption, panels)
    if not isinstance(encoding, (Rotary, Bias, Contextual)):
        raise TypeError(f"encoding must be an Encoding, got {type(encoding).__name__}")
    draw = {"rotary": _scores, "bias": _biases, "contextual": _reading}[_door(encoding)]
    panels, caption = draw(encoding)
    if _says_nothing(panels) and any(True for _ in encoding.parameters()):
        panels, caption = draw(stirred(encoding))
        caption += (
            f" Parameters are drawn at random (standard deviation {STIRRED}): as initialised, the"
            " encoding adds nothing."
        )
    return Figure(title, caption, panels)


def _door(encoding: Encoding) -> str:
    kinds = (("rotary", Rotary), ("bias", Bias), ("contextual", Contextual))
    return next(name for name, kind in kinds if isinstance(encoding, kind))


def stirred(encoding: Encoding) -> Encoding:
    """A copy whose parameters are seeded normal numbers."""
    made = copy.deepcopy(encoding)
    for seed, (_, parameter) in enumerate(sorted(made.named_parameters())):
        drawn = gaussian(*parameter.shape, seed=500 + seed) * STIRRED
        parameter.copy_(drawn.to(parameter.dtype))
    return made


def _says_nothing(panels: tuple[Panel, ...]) -> bool:
    curves = [c for p in panels if isinstance(p, Lines) for c in p.curves.values()]
    return not any(value for curve in curves for value in curve)


# --- families ------------------------------------------------------------------------------------


def _codes(encoding: Additive) -> tuple[tuple[Panel, ...], str]:
    count = min(POSITIONS, reach(encoding).count)
    places = probes.on_axes(torch.arange(count), encoding.axes)
    found = probes.codes(encoding, places, length=count)
    step = -(-encoding.dim // LANES)
    rows = found.T[::step].tolist()
    where = "position" if encoding.axes == 1 else "position, the same on every axis"
    caption = f"What is added to the embedding at each position, of {count}"
    caption += f"; every {_ordinal(step)} of {encoding.dim} lanes." if step > 1 else "."
    return (Heat("code by position", where, "lane", rows, step),), caption


def _scores(encoding: Any) -> tuple[tuple[Panel, ...], str]:
    count = min(DISTANCES, reach(encoding).count)
    line = torch.arange(count)
    curves, heads = _constant(encoding, line)
    caption = "Score by distance: of q = k = (1, …, 1), ÷ head_dim"
    if _is_linear(encoding):
        chosen = torch.linspace(0, count - 1, min(STRENGTHS, count)).long()
        curves["largest"] = _largest(encoding, line, chosen)
        caption += ", and the largest that any q and k of length 1 reach"
    caption += _of(probes.heads_of(encoding), heads)
    score = Lines("score by distance", "distance, key at position 0", line.tolist(), curves)
    spectrum = getattr(encoding, "spectrum", None)
    waves = wavelengths(spectrum, HALF) if spectrum is not None else None
    if waves is None:
        return (score,), caption
    return (waves[0], score), f"{waves[1]} {caption}"


def _is_linear(encoding: Rotary) -> bool:
    """Whether twice q gives twice the result; else there is no matrix with a largest score."""
    x = gaussian(2, encoding.head_dim, seed=81)
    places = probes.on_axes(torch.arange(2), encoding.axes)
    once, twice = (probes.vectors(encoding, x * size, places, "q") for size in (1, 2))
    return torch.allclose(2 * once, twice, rtol=1e-9, atol=1e-12)


def _constant(encoding: Rotary, line: Tensor) -> tuple[dict[str, Curve], list[int]]:
    """The score of q = k = (1, …, 1) at each distance ÷ head_dim: of some heads, or every axis."""
    ones = torch.ones(len(line), encoding.head_dim, dtype=torch.float64)
    origin = probes.on_axes(line[:1], encoding.axes)
    key = probes.vectors(encoding, ones[:1], origin, "k")
    curves: dict[str, Curve] = {}
    moves = directions(encoding.axes)
    heads = evenly(probes.heads_of(encoding), HALF if len(moves) == 1 else 1)
    for name, direction in moves.items():
        places = line if encoding.axes == 1 else line[:, None] * direction
        query = probes.vectors(encoding, ones, places, "q")
        found = (query * key).sum(-1) / encoding.head_dim
        for head in heads:
            curves[_axis(name, moves) or _head(head, heads) or "q = k"] = found[head].tolist()
    return curves, heads


def _largest(encoding: Rotary, line: Tensor, chosen: Tensor) -> list[float]:
    """The largest score that any unit q and k reach, over axes and heads; joined between chosen."""
    key = probes.operators(encoding, probes.on_axes(line[:1], encoding.axes), "k")
    best = torch.zeros(len(chosen), dtype=torch.float64)
    for direction in directions(encoding.axes).values():
        places = line[chosen] if encoding.axes == 1 else line[chosen, None] * direction
        queries = probes.operators(encoding, places, "q")
        sizes = torch.linalg.matrix_norm(queries.transpose(-1, -2) @ key, 2)
        best = torch.maximum(best, sizes.amax(-1))
    return np.interp(line.numpy(), chosen.numpy(), best.numpy()).tolist()


def _biases(encoding: Any) -> tuple[tuple[Panel, ...], str]:
    count = min(DISTANCES, reach(encoding).count)
    line = torch.arange(count)
    moves = directions(encoding.axes)
    heads = evenly(encoding.heads, CURVES if len(moves) == 1 else 1)
    query = probes.on_axes(line[-1:], encoding.axes)
    curves: dict[str, Curve] = {}
    for name, direction in moves.items():
        places = line if encoding.axes == 1 else line[:, None] * direction
        found = probes.biases(encoding, query, query - places, finite=False)[:, 0]
        for head in heads:
            curves[_axis(name, moves) or _head(head, heads) or "bias"] = found[head].tolist()
    panel = Lines(
        "bias by distance",
        f"distance to the key, query at position {count - 1}",
        line.tolist(),
        curves,
    )
    caption = "What is added to the logit of a key at each distance"
    return (panel,), caption + _of(encoding.heads, heads)


def _reading(encoding: Any) -> tuple[tuple[Panel, ...], str]:
    heads, dim = probes.contextual_size(encoding)
    chosen = evenly(heads, HALF)
    line = probes.on_axes(torch.arange(SEQUENCE), encoding.axes)
    alike = torch.ones(2, heads, SEQUENCE, dim, dtype=torch.float64)
    panels = []
    for title, (q, k) in (
        ("added to logits, tokens all alike", alike),
        ("added to logits, random tokens", gaussian(2, heads, SEQUENCE, dim, seed=80)),
    ):
        found = probes.read_biases(encoding, q, k, line, line)[:, -1].flip(-1)
        curves = {_head(h, chosen) or "bias": found[h].tolist() for h in chosen}
        panels.append(Lines(title, "distance to the key", list(range(SEQUENCE)), curves))
    caption = (
        f"What position adds to the logits of the last of {SEQUENCE} tokens: with q = k = "
        "(1, …, 1) for every token, and with seeded random q and k"
    )
    return tuple(panels), caption + _of(heads, chosen)


# --- words ---------------------------------------------------------------------------------------


def _head(head: int, shown: list[int]) -> str:
    return f"head {head}" if shown != [0] else ""


def _axis(name: str, moves: dict[str, Tensor]) -> str:
    return name.replace("_", " ") if len(moves) > 1 else ""


def _of(heads: int, shown: list[int]) -> str:
    if heads == len(shown):
        return "."
    return f"; {len(shown)} of {heads} heads." if len(shown) > 1 else f"; head 0 of {heads}."


def _ordinal(count: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(count, f"{count}th")
