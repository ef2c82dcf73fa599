r"""relative: the score of two tokens depends on their distance alone.

.. math:: \max_{i,j} |s(i+t, j+t) - s(i, j)| \;/\; \mathrm{std}(s) \;\le\; 10^{-9},
          \qquad t \in \{1, 1000, 2^{20}\}

s is the attention logit of Gaussian content: additive codes pass through random W_q and W_k with
it, rotary encodings turn q and k, a bias is its own score. Several axes are shifted together. A
contextual bias is asked for the same tokens after others have been prepended (1 and 1000 of them);
where logits are qᵀ T(i, j) k and read no hidden states, positions are shifted as for the others,
and by 5 and 77 too, as 1000 and 2²⁰ are multiples of what tokens are usually grouped by.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import probes
from ropewalk.checks.content import gaussian, scattered
from ropewalk.checks.measurement import Measurement, at_most, judge, measure, not_applicable
from ropewalk.checks.reach import reach
from ropewalk.checks.shifts import BASE, SHIFTS, fitting
from ropewalk.core import Additive, Bias, Block, Contextual, Encoding, Rotary

TOLERANCE = 1e-9
TOKENS = 24
ODD = [5, 77]


@measure(TOLERANCE)
def relative_error(encoding: Encoding) -> Measurement:
    """The largest change of a score under a common shift ÷ the scores' standard deviation."""
    if isinstance(encoding, Contextual) and not by_position(encoding):
        return _prepended(encoding)
    far = reach(encoding)
    shifts = fitting(far.count, TOKENS)
    if isinstance(encoding, Contextual):
        shifts += ODD
    if not shifts:
        return not_applicable(f"positions end at {far.count - 1}: no room to shift {TOKENS} tokens")
    figures = {
        f"shift_{by}": change(encoding, torch.ones(encoding.axes, dtype=torch.int64), by, far.count)
        for by in shifts
    }
    return at_most(
        max(figures.values()),
        TOLERANCE,
        figures,
        None if len(shifts) >= len(SHIFTS) else far.reason,
    )


def by_position(encoding: Contextual) -> bool:
    """Whether nothing but positions decides how q and k are turned."""
    return encoding.bilinear and encoding.content_dim is None


def change(encoding: Encoding, direction: Tensor, by: int, count: int) -> float:
    """The largest change of a score when all positions move ``by`` along ``direction`` ÷ std.

    Args:
        encoding: any whose scores are those of positions.
        direction: int64 ``[axes]``.
        by: the shift.
        count: positions end here.
    """
    places = scattered(min(BASE, count - by), TOKENS, encoding.axes, seed=30)
    still, moved = scores(encoding, places), scores(encoding, places + by * direction)
    spread = still.std().item()
    largest = (moved - still).abs().max().item()
    return largest / spread if spread else (0.0 if largest == 0 else float("inf"))


def scores(encoding: Encoding, places: Tensor) -> Tensor:
    """Logits of fixed content at ``places``, ``[heads, n, n]``."""
    count = len(places)
    if isinstance(encoding, Additive):
        x = gaussian(count, encoding.dim, seed=31) + probes.codes(encoding, places)
        to_q, to_k = gaussian(2, encoding.dim, encoding.dim, seed=32) / encoding.dim**0.5
        return ((x @ to_q) @ (x @ to_k).T)[None]
    if isinstance(encoding, Rotary):
        q, k = gaussian(2, count, encoding.head_dim, seed=33)
        turned_q = probes.vectors(encoding, q, places, "q")
        turned_k = probes.vectors(encoding, k, places, "k")
        return turned_q @ turned_k.transpose(-1, -2)
    if isinstance(encoding, Bias):
        return probes.biases(encoding, places, places)
    if isinstance(encoding, Contextual):
        heads, dim = probes.contextual_size(encoding)
        q, k = gaussian(2, 1, heads, count, dim, seed=35)
        where = probes.asked(encoding, places)
        block = Block(q.to(where.device), k.to(where.device), where, where, None)
        return encoding.logits(block)[0].cpu()
    raise TypeError(f"{type(encoding).__name__} has no score of its own")


def _prepended(encoding: Contextual) -> Measurement:
    heads, dim = probes.contextual_size(encoding)
    longest = max(by for by in SHIFTS if by <= BASE)
    q, k = gaussian(2, heads, longest + TOKENS, dim, seed=34)
    figures, scale = {}, 1.0
    still = torch.zeros(())
    for by in (0, *(by for by in SHIFTS if by <= BASE)):
        line = probes.on_axes(torch.arange(by + TOKENS), encoding.axes)
        tail = slice(longest - by, None)
        bias = probes.read_biases(encoding, q[:, -TOKENS:], k[:, tail], line[by:], line)
        own = bias[..., by:]
        if by == 0:
            still, scale = own, own.std().item()
        else:
            largest = (own - still).abs().max().item()
            figures[f"prepended_{by}"] = largest / scale if scale else largest
    return at_most(max(figures.values()), TOLERANCE, figures, "tokens are prepended: up to 1000")


def assert_relative(encoding: Encoding) -> Measurement:
    """Raise AssertionError unless scores depend on distance alone."""
    return judge("relative", encoding, relative_error(encoding))
