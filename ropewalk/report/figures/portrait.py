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
from ropewalk.report.figures.panels import Figure, Heat, Lines, Panel
from ropewalk.report.figures.wavelengths import wavelengths

POSITIONS, LANES, DISTANCES, SEQUENCE = 64, 32, 128, 96
CURVES = 8
"""Curves of a panel; of more heads, these many are shown, evenly chosen."""
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
    curves = _constant(encoding, line)
    chosen = torch.linspace(0, count - 1, min(STRENGTHS, count)).long()
    largest = _largest(encoding, line, chosen)
    curves["largest of any q, k"] = largest
    caption = (
        "Score by distance: of q = k = (1, …, 1), ÷ head_dim, and the largest that any q and k of "
        "length 1 reach."
    )
    score = Lines("score by distance", "distance, key at position 0", line.tolist(), curves)
    spectrum = getattr(encoding, "spectrum", None)
    waves = wavelengths(spectrum, CURVES) if spectrum is not None else None
    if waves is None:
        return (score,), caption
    return (waves[0], score), f"{waves[1]} {caption}"


def _constant(encoding: Rotary, line: Tensor) -> dict[str, list[float | None]]:
    """The score of q = k = (1, …, 1) at each distance ÷ head_dim, by axis and head."""
    ones = torch.ones(len(line), encoding.head_dim, dtype=torch.float64)
    origin = probes.on_axes(line[:1], encoding.axes)
    key = probes.vectors(encoding, ones[:1], origin, "k")
    curves: dict[str, list[float | None]] = {}
    moves = directions(encoding.axes)
    heads = _chosen(probes.heads_of(encoding), max(CURVES // len(moves), 1))
    for name, direction in moves.items():
        places = line if encoding.axes == 1 else line[:, None] * direction
        query = probes.vectors(encoding, ones, places, "q")
        found = (query * key).sum(-1) / encoding.head_dim
        for head in heads:
            words = [w for w in (_axis(name, moves), _head(head, heads)) if w]
            curves[", ".join(words) or "q = k"] = found[head].tolist()
    return curves


def _largest(encoding: Rotary, line: Tensor, chosen: Tensor) -> list[float | None]:
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
    heads = _chosen(encoding.heads, max(CURVES // len(moves), 1))
    query = probes.on_axes(line[-1:], encoding.axes)
    curves: dict[str, list[float | None]] = {}
    for name, direction in moves.items():
        places = line if encoding.axes == 1 else line[:, None] * direction
        found = probes.biases(encoding, query, query - places, finite=False)[:, 0]
        for head in heads:
            words = [w for w in (_axis(name, moves), _head(head, heads)) if w]
            curves[", ".join(words) or "bias"] = found[head].tolist()
    panel = Lines(
        "bias by distance",
        f"distance to the key, query at position {count - 1}",
        line.tolist(),
        curves,
    )
    return (panel,), "What is added to the logit of a key at each distance" + _of(encoding, heads)


def _reading(encoding: Any) -> tuple[tuple[Panel, ...], str]:
    heads, dim = probes.contextual_size(encoding)
    chosen = _chosen(heads, CURVES)
    q, k = gaussian(2, heads, SEQUENCE, dim, seed=80)
    line = probes.on_axes(torch.arange(SEQUENCE), encoding.axes)
    found = probes.read_biases(encoding, q, k, line, line)[:, -1].flip(-1)
    curves = {_head(h, chosen) or "bias": found[h].tolist() for h in chosen}
    panel = Lines(
        "added to the logits of one query",
        "distance to the key",
        list(range(SEQUENCE)),
        curves,
    )
    caption = (
        f"What position adds to the logits of the last of {SEQUENCE} tokens with seeded random q "
        "and k" + _of(encoding, chosen)
    )
    return (panel,), caption


# --- words ---------------------------------------------------------------------------------------


def _chosen(count: int, most: int) -> list[int]:
    """At most ``most`` of ``count``, evenly from first to last."""
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)] if most > 1 else [0]


def _head(head: int, shown: list[int]) -> str:
    return f"head {head}" if shown != [0] else ""


def _axis(name: str, moves: dict[str, Tensor]) -> str:
    return name.replace("_", " ") if len(moves) > 1 else ""


def _of(encoding: Any, shown: list[int]) -> str:
    heads = getattr(encoding, "heads", None)
    if isinstance(heads, int) and heads > len(shown):
        return f"; {len(shown)} of {heads} heads."
    return "."


def _ordinal(count: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(count, f"{count}th")
