r"""decay: distant tokens interact less, whatever they say.

.. math:: S(\Delta) = \sigma_{\max}\bigl(T_i^\top T_j\bigr),\; i - j = \Delta
          \qquad\text{or the bias } b_h(\Delta)

S is the largest score that any unit q and k can reach at that distance. The error is the largest
rise of S on the way to Δ = 8192 ÷ its span; it is 1 where S(8192) is not clearly below S(0), as a
flat curve falls by nothing. Tolerance 1e-9. Null for additive codes, which have no score of their
own. A contextual bias is asked with several contents, random ones and one large token over and
over, and S is the largest of their biases, as for all q and k: this can refute decay but not prove
it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import probes
from ropewalk.checks.content import gaussian
from ropewalk.checks.measurement import Measurement, at_most, judge, measure, not_applicable
from ropewalk.checks.reach import reach
from ropewalk.checks.shifts import directions
from ropewalk.core import Additive, Bias, Contextual, Encoding, Rotary

TOLERANCE = 1e-9
FARTHEST = 8192
_LOUD = 1000.0
CLEARLY = 1e-3
"""S(8192) lies this share of the largest |S| below S(0), or the curve does not decay."""


@measure(TOLERANCE)
def decay_error(encoding: Encoding) -> Measurement:
    """The largest rise of S(Δ) ÷ its span, or 1 where it does not fall; null for additive."""
    if isinstance(encoding, Additive):
        return not_applicable("additive codes have no score of their own")
    if isinstance(encoding, Contextual):
        return _judged(_read(encoding), None)
    far = reach(encoding)
    farthest = min(FARTHEST, far.count - 1)
    if farthest < 2:
        return not_applicable(f"positions end at {far.count - 1}: no distances to compare")
    curves = [
        strength(encoding, direction, farthest) for direction in directions(encoding.axes).values()
    ]
    reason = None if farthest == FARTHEST else far.reason
    return _judged(torch.cat(curves), reason)


def _judged(curves: Tensor, reason: str | None) -> Measurement:
    """The worst of the curves ``[n, distances]``."""
    start, end = curves[:, 0], curves[:, -1]
    size = curves.abs().amax(-1).clamp_min(1e-300)
    span = torch.maximum(curves.amax(-1) - curves.amin(-1), 1e-9 * size)
    rise = curves.diff(dim=-1).clamp_min(0).amax(-1) / span
    falls = (start - end) > CLEARLY * size
    errors = torch.where(falls, rise, rise.clamp_min(1.0))
    worst = int(errors.argmax())
    largest = curves.diff(dim=-1).amax(-1)
    named = {"start": start, "end": end, "largest_rise": largest}
    figures = {name: values[worst].item() for name, values in named.items()}
    if not bool(falls[worst]) and reason is None:
        reason = f"S(0) = {figures['start']:.4g} and S at the farthest is {figures['end']:.4g}"
    return at_most(errors[worst].item(), TOLERANCE, figures, reason)


def _distances(farthest: int) -> Tensor:
    near = torch.arange(min(33, farthest + 1))
    far = torch.logspace(0, torch.tensor(float(farthest)).log10().item(), 64, dtype=torch.float64)
    return torch.cat((near, far.long(), torch.tensor([farthest]))).unique()


def strength(encoding: Encoding, direction: Tensor, farthest: int) -> Tensor:
    """S at distances 0 … ``farthest`` along ``direction``, ``[heads, distances]``.

    Every distance for a bias; a selection, dense near 0, for singular values.
    """
    origin = probes.on_axes(torch.zeros(1, dtype=torch.int64), encoding.axes)
    if isinstance(encoding, Bias):
        line = torch.arange(farthest + 1)
        places = line if encoding.axes == 1 else line[:, None] * direction
        return probes.biases(encoding, places, origin)[..., 0]
    if isinstance(encoding, Rotary):
        line = _distances(farthest)
        places = line if encoding.axes == 1 else line[:, None] * direction
        queries = probes.operators(encoding, places, "q")
        key = probes.operators(encoding, origin, "k")
        return torch.linalg.matrix_norm(queries.transpose(-1, -2) @ key, 2).T
    raise TypeError(f"{type(encoding).__name__} has no score of its own")


def _read(encoding: Contextual) -> Tensor:
    heads, dim = probes.contextual_size(encoding)
    q, k = gaussian(heads, 1, dim, seed=60), gaussian(heads, FARTHEST + 1, dim, seed=61)
    line = probes.on_axes(torch.arange(FARTHEST + 1), encoding.axes)
    loud = (_LOUD * sign * k[:, :1].expand_as(k) for sign in (1, -1))
    curves = [probes.read_biases(encoding, q, keys, line[-1:], line)[:, 0] for keys in (k, *loud)]
    return torch.stack(curves).amax(0).flip(-1)


def assert_decay(encoding: Encoding) -> Measurement:
    """Raise AssertionError unless scores fall with distance for all contents."""
    return judge("decay", encoding, decay_error(encoding))
