r"""extends: the encoding of a position does not depend on how long the sequence is.

Bit-equal at p in sequences of p + 1, 4p and 2²⁰ tokens; the error is the largest difference ÷ the
largest value, tolerance 0. Sequences up to 40,000 tokens are whole (contextual: up to 400, and no
others; with a tolerance of 1e-12, since products of matrices of another length may be added up in
another order); beyond, a sequence is told by its first, its last and the asked position, and by
``length=`` for additive codes, so that anything inferred from the largest position shows. A table
that ends fails. Necessary for generalising to longer texts, not sufficient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import probes
from ropewalk.checks.content import gaussian
from ropewalk.checks.measurement import Measurement, at_most, judge, measure
from ropewalk.checks.reach import pristine, reach
from ropewalk.core import Additive, Bias, Contextual, Encoding, Rotary

TOLERANCE = 0.0
REORDERED = 1e-12
PLACES = (1, 7, 100, 3000, 10_000)
"""The positions p."""

LONG = 2**20
_WHOLE = 40_000
_WHOLE_SQUARE = 400


@measure(TOLERANCE)
def extends_error(encoding: Encoding) -> Measurement:
    """The largest difference at p between lengths p + 1, 4p and 2²⁰ ÷ the largest value."""
    far = reach(encoding)
    if far.ends and far.count < LONG:
        return Measurement(None, TOLERANCE, False, far.reason)
    contextual = isinstance(encoding, Contextual)
    longest = _WHOLE_SQUARE if contextual else far.count
    worst, size = 0.0, 0.0
    for place in PLACES:
        first: Tensor | None = None
        for length in (place + 1, 4 * place, LONG):
            if length > longest:
                break
            found = at(pristine(encoding), place, length)
            first = found if first is None else first
            worst = max(worst, (found - first).abs().max().item())
            size = max(size, first.abs().max().item())
    reason = f"sequences up to {longest} tokens" if contextual else far.reason
    tolerance = REORDERED if contextual else TOLERANCE
    return at_most(worst / size if size else worst, tolerance, reason=reason)


def at(encoding: Encoding, place: int, length: int) -> Tensor:
    """What the encoding does at position ``place`` of a sequence of ``length`` tokens."""
    whole = length <= _WHOLE
    line = torch.arange(length) if whole else torch.tensor([0, place, length - 1])
    index = place if whole else 1
    places = probes.on_axes(line, encoding.axes)
    if isinstance(encoding, Additive):
        stated = probes.codes(encoding, places, length=length)
        inferred = probes.codes(encoding, places)
        return torch.stack((stated[index], inferred[index]))
    if isinstance(encoding, Rotary):
        x = gaussian(1, encoding.head_dim, seed=70).expand(len(line), -1)
        both = [probes.vectors(encoding, x, places, side) for side in probes.SIDES]
        return torch.stack(both)[..., index, :]
    if isinstance(encoding, Bias):
        queries = line if length <= _WHOLE_SQUARE else torch.tensor([place, length - 1])
        row = place if length <= _WHOLE_SQUARE else 0
        bias = probes.biases(encoding, probes.on_axes(queries, encoding.axes), places)
        return bias[:, row, [0, index]]
    if isinstance(encoding, Contextual):
        heads, dim = probes.contextual_size(encoding)
        q, k = gaussian(2, heads, _WHOLE_SQUARE, dim, seed=71)[..., :length, :]
        return probes.read_biases(encoding, q, k, places, places)[:, place, : place + 1]
    raise TypeError(f"{type(encoding).__name__} belongs to no family")


def assert_extends(encoding: Encoding) -> Measurement:
    """Raise AssertionError unless positions are encoded alike at every length."""
    return judge("extends", encoding, extends_error(encoding))
