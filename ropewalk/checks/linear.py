r"""linear: a shift of position is one linear map, the same at every position.

.. math:: E(p + k) = M_k\,E(p) \qquad\text{or}\qquad T(p + k) = M_k\,T(p),\; M_k = T(k)\,T(0)^{-1}

Additive: M_k is ``shift_matrix(k)`` where given, else a least-squares fit on 8(D + 1) positions
drawn at random below 2²⁰ (or from the table) and tested on others: a fit on neighbours would judge
the sinusoid nonlinear. The error is the RMS residual ÷ the RMS of E(p+k) − E(p), at the worst k.
A contextual encoding with logits qᵀ T(i, j) k that reads hidden states is asked for M_k T(p, 0) =
T(p + k, 0) along random ones. Linear means linear: the figure ``affine`` is the same fit with a
constant, which the integer code passes and this check does not accept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import probes
from ropewalk.checks.content import scattered
from ropewalk.checks.measurement import Measurement, at_most, judge, measure, not_applicable
from ropewalk.checks.nearest import SAME
from ropewalk.checks.reach import reach
from ropewalk.checks.shifts import directions
from ropewalk.core import Additive, Contextual, Encoding, Rotary

TOLERANCE = 1e-6
STEPS = (1, 100)
"""The shifts k."""

_SPAN = 2**20
_TESTED = 256
_OPERATORS = 48
_WIDENED = 8
"""Anchors of M where encoding widens vectors, so that one T does not span what M acts on."""


@measure(TOLERANCE)
def linear_error(encoding: Encoding) -> Measurement:
    """RMS of c(p+k) − M_k c(p) ÷ RMS of c(p+k) − c(p), at the worst k; null for biases."""
    span = min(_SPAN, reach(encoding).count)
    if isinstance(encoding, Rotary):
        return _of_operators(encoding, span)
    if isinstance(encoding, Additive):
        return _of_codes(encoding, span)
    if isinstance(encoding, Contextual) and encoding.bilinear and encoding.content_dim is not None:
        return _along_content(encoding)
    return not_applicable("a bias has no code to shift")


def _share(moved: Tensor, predicted: Tensor, still: Tensor) -> float:
    """Residual ÷ movement; movements below 1e-6 of the code count as that much."""
    floor = SAME * still.square().mean().sqrt()
    movement = torch.maximum((moved - still).square().mean().sqrt(), floor).clamp_min(1e-300)
    return ((moved - predicted).square().mean().sqrt() / movement).item()


def _of_operators(encoding: Rotary, span: int) -> Measurement:
    axes, worst = encoding.axes, 0.0
    steps = [k for k in STEPS if k + 2 <= span]
    if not steps:
        return not_applicable(f"positions end at {span - 1}: too few to shift")
    anchor = probes.on_axes(torch.zeros(1, dtype=torch.int64), axes)
    for k in steps:
        if encoding.encoded_dim > encoding.head_dim:
            anchor = scattered(span - k, _WIDENED, axes, seed=15)
        places = scattered(span - k, _OPERATORS, axes, seed=10)
        for direction in directions(axes).values():
            for side in probes.SIDES:
                shift = _map(encoding, anchor, k * direction, side)
                still = probes.operators(encoding, places, side)
                moved = probes.operators(encoding, places + k * direction, side)
                worst = max(worst, _share(moved, shift @ still, still))
    return at_most(worst, TOLERANCE)


def _along_content(encoding: Contextual) -> Measurement:
    line = probes.on_axes(torch.arange(max(STEPS) + _OPERATORS), encoding.axes)
    content = probes.hidden_tokens(encoding, len(line), seed=11)
    path = probes.pair_operators(encoding, line, line, content)[:, :, 0]
    worst = 0.0
    for k in STEPS:
        shift = path[:, k] @ torch.linalg.inv(path[:, 0])
        still, moved = path[:, :-k], path[:, k:]
        worst = max(worst, _share(moved, shift[:, None] @ still, still))
    return at_most(worst, TOLERANCE)


def _map(encoding: Rotary, anchors: Tensor, shift: Tensor, side: probes.Side) -> Tensor:
    """M with T(a + shift) = M T(a) at the anchors, ``[heads, encoded_dim, encoded_dim]``."""
    start, end = (
        probes.operators(encoding, places, side).permute(1, 2, 0, 3).flatten(-2)
        for places in (anchors, anchors + shift)
    )
    return end @ torch.linalg.pinv(start) if len(anchors) > 1 else end @ torch.linalg.inv(start)


def _of_codes(encoding: Additive, span: int) -> Measurement:
    worst: list[float] = []
    affine: list[float] = []
    for k in STEPS:
        given = encoding.shift_matrix(int(probes.asked(encoding, torch.tensor(k))))
        for name, direction in directions(encoding.axes).items():
            exact = given if name == "jointly" else None
            drawn = scattered(max(span - k, 0), 8 * (encoding.dim + 1) + _TESTED, encoding.axes, 20)
            cut = len(drawn) - min(_TESTED, len(drawn) // 4)
            if exact is None and cut < 2 * (encoding.dim + 1):
                continue
            still = probes.codes(encoding, drawn, length=span)
            moved = probes.codes(encoding, drawn + k * direction, length=span)
            if exact is None:
                worst.append(_fitted(still, moved, cut))
                affine.append(_fitted(_with_constant(still), moved, cut))
            else:
                worst.append(_share(moved, still @ exact.to("cpu", torch.float64).T, still))
    if not worst:
        return not_applicable(
            f"positions end at {span - 1}: too few to fit a map of {encoding.dim} lanes"
        )
    return at_most(max(worst), TOLERANCE, {"affine": max(affine)} if affine else None)


def _with_constant(still: Tensor) -> Tensor:
    """Codes with a lane of their own RMS size, which gives a linear fit a constant."""
    size = still.square().mean().sqrt().clamp_min(1e-300)
    return torch.cat((still, size.expand(len(still), 1)), dim=-1)


def _fitted(still: Tensor, moved: Tensor, cut: int) -> float:
    """The residual on rows from ``cut`` on, of the map fitted to those before."""
    fit = torch.linalg.lstsq(still[:cut], moved[:cut], driver="gelsd").solution
    predicted = still[cut:] @ fit
    return _share(moved[cut:], predicted, still[cut:, : moved.shape[-1]])


def assert_linear(encoding: Encoding) -> Measurement:
    """Raise AssertionError unless shifts of position are linear maps."""
    return judge("linear", encoding, linear_error(encoding))
